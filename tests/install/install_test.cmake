# SPDX-License-Identifier: Apache-2.0
# Installs BUILD_DIR to a temporary prefix, then configures, builds and runs the consumer there.
# The project must be built. Fails with the step and its output.
cmake_minimum_required(VERSION 3.25)

set(temporary $ENV{TMPDIR})
if(NOT temporary)
  set(temporary /tmp)
endif()
string(RANDOM LENGTH 12 suffix)
set(work ${temporary}/octavo-install-test-${suffix})
file(MAKE_DIRECTORY ${work})

function(run_step name expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output MATCHES "${expected}")
    file(REMOVE_RECURSE ${work})
    message(FATAL_ERROR "${name} gave ${result}; expected 0 and output matching \"${expected}\":\n${output}")
  endif()
endfunction()

run_step(install "octavo-config.cmake" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${work}/prefix)

# A package that names the tree it was built from works only on the machine that built it.
file(GLOB_RECURSE configs ${work}/prefix/*.cmake)
foreach(config ${configs})
  file(READ ${config} text)
  string(FIND "${text}" "${SOURCE_DIR}" position)
  if(NOT position EQUAL -1)
    file(REMOVE_RECURSE ${work})
    message(FATAL_ERROR "${config} names the source tree ${SOURCE_DIR}")
  endif()
endforeach()

file(COPY ${SOURCE_DIR}/tests/install/consumer DESTINATION ${work})
configure_file(${SOURCE_DIR}/examples/gemm.cpp ${work}/consumer/main.cpp COPYONLY)
set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
run_step(configure "Build files have been written" ${CMAKE_COMMAND} -S ${work}/consumer
  -B ${work}/build -G Ninja -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
  -DCMAKE_CXX_FLAGS=${flags})
run_step(build "" ${CMAKE_COMMAND} --build ${work}/build)
# 512 products of 0.5 and 0.25, both exact in FP8 after scaling: 64.
run_step(run "d\\[0\\] = 64" ${work}/build/consumer)
if(WITH_COMMAND)
  run_step(command "^${VERSION}" ${work}/prefix/bin/octavo --version)
endif()
file(REMOVE_RECURSE ${work})
