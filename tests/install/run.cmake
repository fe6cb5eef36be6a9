# cmake -DBUILD=... -DSOURCE=... -DWORK=... -P run.cmake: the package as its users see it. See CMakeLists.txt.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE _rc OUTPUT_VARIABLE _out ERROR_VARIABLE _out)
  if(NOT _rc EQUAL 0)
    message(FATAL_ERROR "${what} failed (${_rc}):\n${_out}")
  endif()
  set(output "${_out}" PARENT_SCOPE)
  message(STATUS "${what}: done")
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
# An installation can be moved.
file(RENAME ${WORK}/installed ${WORK}/prefix)
set(_prefix ${WORK}/prefix)

# Nothing of the tree that it was built from, and none of its compiler options.
file(GLOB_RECURSE _files ${_prefix}/*.cmake ${_prefix}/*.pc)
foreach(_file IN LISTS _files)
  file(READ ${_file} _text)
  foreach(_leak "${SOURCE}/" "${BUILD}/" "-Wshadow" "-Werror" "ahbm_options" "Eigen3")
    string(FIND "${_text}" "${_leak}" _at)
    if(NOT _at EQUAL -1)
      message(FATAL_ERROR "${_file} has '${_leak}' in it")
    endif()
  endforeach()
endforeach()
file(GLOB_RECURSE _private ${_prefix}/raw_config.h ${_prefix}/yaml_reader.h ${_prefix}/description.h)
if(_private)
  message(FATAL_ERROR "private headers are installed: ${_private}")
endif()

# The program finds the platforms of its own installation.
run("ahbm-vp config" ${CMAKE_COMMAND} -E chdir ${WORK} ${_prefix}/bin/ahbm-vp config -c tiny)
string(FIND "${output}" "${_prefix}/share/ahbm/configs/ccl.yaml" _at)
if(_at EQUAL -1)
  message(FATAL_ERROR "ahbm-vp of the installation reads another tiny.yaml:\n${output}")
endif()

set(_common -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${_prefix} -DCMAKE_CXX_COMPILER=${COMPILER}
            -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
if(SANITIZE)
  list(APPEND _common "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()

# All public headers together, with more warnings than ours; layers without SystemC; pkg-config.
run("configure the consumer" ${CMAKE_COMMAND} -S ${SOURCE}/tests/install/consumer -B ${WORK}/consumer ${_common}
    -DHEADERS=${_prefix}/include/ahbm)
run("build the consumer" ${CMAKE_COMMAND} --build ${WORK}/consumer)
run("run the consumer" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/consumer --output-on-failure)
set(ENV{PKG_CONFIG_PATH} ${_prefix}/${LIBDIR}/pkgconfig)
run("pkg-config" pkg-config --cflags --libs --static ahbm)
separate_arguments(_flags UNIX_COMMAND "${output}")
set(_sanitize)
if(SANITIZE)
  set(_sanitize -fsanitize=${SANITIZE})
endif()
run("build with pkg-config" ${LAUNCHER} ${COMPILER} -std=c++17 ${_sanitize} -c ${SOURCE}/tests/install/consumer/main.cpp
    -o ${WORK}/main.o -DPLATFORMS="${_prefix}/share/ahbm/configs" ${_flags})
run("link with pkg-config" ${COMPILER} ${_sanitize} ${WORK}/main.o -o ${WORK}/pkg_config_program ${_flags})
run("run it" ${WORK}/pkg_config_program)

run("configure the examples" ${CMAKE_COMMAND} -S ${SOURCE}/platform/examples -B ${WORK}/examples ${_common})
run("build the examples" ${CMAKE_COMMAND} --build ${WORK}/examples)
run("run the examples" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/examples --output-on-failure --no-tests=error)
message(STATUS "${output}")
