# Compiler settings shared by every target, and the helper that declares a layer.
set(CMAKE_CXX_STANDARD 17) # libsystemc of Debian 12 links with C++17 only
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

include(GNUInstallDirs)
include(TestBigEndian)
test_big_endian(AHBM_BIG_ENDIAN)
if(AHBM_BIG_ENDIAN)
  message(FATAL_ERROR "AHBM-VP models a little-endian machine and runs on little-endian hosts only")
endif()

find_program(AHBM_CCACHE ccache)
if(AHBM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${AHBM_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${AHBM_CCACHE}")
endif()

add_library(ahbm_options INTERFACE)
target_compile_options(ahbm_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
# Position-independent code, but nobody replaces our functions at load time: calls inside a file may be inlined.
target_compile_options(ahbm_options INTERFACE -fno-semantic-interposition)
if(AHBM_WARNINGS_AS_ERRORS)
  target_compile_options(ahbm_options INTERFACE -Werror)
endif()
if(AHBM_SANITIZE)
  # A finding ends the program: what is only printed fails no test.
  target_compile_options(ahbm_options INTERFACE -fsanitize=${AHBM_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  # libsystemc does not keep AddressSanitizer informed of which thread's stack is in use. After an exception in an
  # SC_THREAD, frames that have been unwound stay marked, and whoever uses that stack next is reported. So frames are not
  # watched; heap, globals and undefined behaviour are.
  if(AHBM_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(ahbm_options INTERFACE "SHELL:--param asan-stack=0")
  endif()
  target_link_options(ahbm_options INTERFACE -fsanitize=${AHBM_SANITIZE})
endif()
option(AHBM_LIBFUZZER "Build tests/fuzz with libFuzzer and everything with its coverage counters (clang only)" OFF)
if(AHBM_LIBFUZZER)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "AHBM_LIBFUZZER=ON needs clang (CXX=clang++), this is ${CMAKE_CXX_COMPILER_ID}; "
                        "without it tests/fuzz uses a mutation driver of its own")
  endif()
  target_compile_options(ahbm_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(ahbm_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(AHBM_CLANG_TIDY)
  find_program(AHBM_CLANG_TIDY_PROGRAM clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY "${AHBM_CLANG_TIDY_PROGRAM}")
endif()

# ahbm_layer(<name> SOURCES ... PUBLIC ... PRIVATE ...): one layer of the product as a static library,
# ahbm_<name>, with the alias ahbm::<name>. What is not named in PUBLIC/PRIVATE cannot be included or linked.
function(ahbm_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(ahbm_${name} STATIC ${ARG_SOURCES})
  add_library(ahbm::${name} ALIAS ahbm_${name})
  set_target_properties(ahbm_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(ahbm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ahbm>)
  target_compile_features(ahbm_${name} PUBLIC cxx_std_17)
  target_link_libraries(ahbm_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:ahbm_options>)
endfunction()
