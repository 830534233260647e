# The simulated CUDA driver: libcuda.so.1 in a folder of its own, and its suites. Built for this machine: it is never installed.
file(GLOB SIMCUDA CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/simcuda/*.c)
list(FILTER SIMCUDA EXCLUDE REGEX "/test_[^/]*$")
add_library(simcuda SHARED ${SIMCUDA})
set_target_properties(simcuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/simcuda)
target_compile_definitions(simcuda PRIVATE _GNU_SOURCE)
target_compile_options(simcuda PRIVATE -O3 -march=native -fno-strict-aliasing -fno-math-errno -fno-trapping-math)
if(CMAKE_C_COMPILER_ID STREQUAL Clang)
  target_compile_options(simcuda PRIVATE -Wno-pass-failed)
else()
  target_compile_options(simcuda PRIVATE -Wno-psabi)
endif()
find_package(Threads REQUIRED)
target_link_libraries(simcuda PRIVATE Threads::Threads m)

# simcuda_test(name [LABEL quick|ci|nightly]): the suite simcuda/test_NAME.c as simcuda.NAME.
function(simcuda_test name)
  cmake_parse_arguments(ARG "" "LABEL" "" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL quick)
  endif()
  add_executable(simcuda_${name} ${CMAKE_CURRENT_LIST_DIR}/simcuda/test_${name}.c
    ${CMAKE_CURRENT_LIST_DIR}/simcuda/test_gpu.c ${CMAKE_CURRENT_LIST_DIR}/simcuda/test_op.c)
  target_compile_definitions(simcuda_${name} PRIVATE _GNU_SOURCE SIMCUDA_DATA="${CMAKE_CURRENT_LIST_DIR}/simcuda/data")
  target_link_libraries(simcuda_${name} PRIVATE simcuda PkgConfig::CHECK m)
  add_test(NAME simcuda.${name} COMMAND simcuda_${name})
  set_tests_properties(simcuda.${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300 ENVIRONMENT "CK_DEFAULT_TIMEOUT=100")
endfunction()

simcuda_test(kernels)
simcuda_test(api)
simcuda_test(checks)
simcuda_test(cvt)
simcuda_test(float)
simcuda_test(int)
simcuda_test(memory)
simcuda_test(misc)
simcuda_test(mutants)
simcuda_test(warp)

# C that LLVM compiles to PTX, and the compiler of the tests natively.
set(portable_ptx ${CMAKE_CURRENT_BINARY_DIR}/portable.ptx)
add_custom_command(OUTPUT ${portable_ptx}
  COMMAND ${FLYMASK_CLANG} --target=nvptx64-nvidia-cuda -march=sm_80 -Xclang -target-feature -Xclang +ptx80 -O3 -std=gnu17 -fwrapv -ffp-contract=off -fno-math-errno
    -S ${CMAKE_CURRENT_LIST_DIR}/simcuda/data/portable.c -o ${portable_ptx}
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/simcuda/data/portable.c ${CMAKE_CURRENT_LIST_DIR}/simcuda/data/portable.h VERBATIM)
add_custom_target(simcuda_portable DEPENDS ${portable_ptx})
simcuda_test(llvm)
add_dependencies(simcuda_llvm simcuda_portable)
target_compile_options(simcuda_llvm PRIVATE -fwrapv) # its integers wrap on both sides
target_compile_definitions(simcuda_llvm PRIVATE SIMCUDA_PORTABLE_PTX="${portable_ptx}")

# The same suites with the real assembler accepting every module first, where it is on the machine.
find_program(PTXAS ptxas)
foreach(name kernels int float cvt llvm memory misc warp)
  if(PTXAS)
    add_test(NAME simcuda.ptxas.${name} COMMAND simcuda_${name})
    set_tests_properties(simcuda.ptxas.${name} PROPERTIES LABELS ci TIMEOUT 600 ENVIRONMENT "CK_DEFAULT_TIMEOUT=300;SIMCUDA_PTXAS=${PTXAS}")
  else()
    add_test(NAME simcuda.ptxas.${name} COMMAND ${CMAKE_COMMAND} -E echo "no ptxas: skipped")
    set_tests_properties(simcuda.ptxas.${name} PROPERTIES LABELS ci SKIP_REGULAR_EXPRESSION "skipped")
  endif()
endforeach()
