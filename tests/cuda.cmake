# The CUDA runtime and its kernels on tests/simcuda. flymask_cuda_test(name ...) is flymask_test for a suite that links
# the simulated driver: libcuda.so.1 is then the one that is there already.
function(flymask_cuda_test name)
  flymask_test(${name} ${ARGN} LIBRARIES simcuda)
endfunction()

flymask_cuda_test(cuda_driver)
set_property(TEST cuda_driver APPEND PROPERTY ENVIRONMENT CK_FORK=yes) # each case begins with a driver of its own
flymask_test(cuda_absent)
flymask_cuda_test(cuda_calls LABEL ci SECONDS 900)
flymask_cuda_test(cuda_failures LABEL ci SECONDS 900)
flymask_cuda_test(cuda_features LABEL ci SECONDS 900)
flymask_cuda_test(cuda_sa LABEL ci)
flymask_cuda_test(cuda_far LABEL ci)

# Backward kernels have other shapes on other devices.
foreach(arch 86 90)
  add_test(NAME cuda_features.sm_${arch} COMMAND test_cuda_features)
  set_tests_properties(cuda_features.sm_${arch} PROPERTIES LABELS ci TIMEOUT 900
    ENVIRONMENT "SIMCUDA_ARCH=${arch};FLYMASK_TEST_TARGET=sm_${arch};CK_RUN_CASE=backward;CK_DEFAULT_TIMEOUT=900;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endforeach()

# simcuda.MASK.fwd|bwd.TYPE: every mask of the library, forward and backward. One suite, a case each.
add_executable(test_cuda_masks test_cuda_masks.c library/scene_call.c library/scene.c library/windows.c library/blocks.c
  library/documents.c library/images.c)
target_link_libraries(test_cuda_masks PRIVATE test_support simcuda)
foreach(source IN LISTS MASKS)
  get_filename_component(mask ${source} NAME_WE)
  foreach(direction fwd bwd)
    foreach(type bf16 f16 f32)
      set(case ${mask}.${direction}.${type})
      set(label ci)
      if(type STREQUAL f16) # bf16's code but for the conversions
        set(label nightly)
      endif()
      if(case MATCHES "^(causal\\.fwd\\.bf16|stochastic\\.bwd\\.bf16|document\\.fwd\\.f32)$")
        set(label quick)
      endif()
      add_test(NAME simcuda.${case} COMMAND test_cuda_masks)
      set_tests_properties(simcuda.${case} PROPERTIES LABELS ${label} TIMEOUT 300
        ENVIRONMENT "CK_RUN_CASE=${case};CK_DEFAULT_TIMEOUT=300;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
    endforeach()
  endforeach()
endforeach()

# Tokens that dK/dV's kernel reads through shared memory, whose tiles are others on other devices and above D 128.
foreach(shape 86.64 86.128 86.256 90.128 80.192)
  string(REPLACE . ";" shape ${shape})
  list(GET shape 0 arch)
  list(GET shape 1 dim)
  set(name simcuda.stochastic.bwd.bf16.sm_${arch}.${dim})
  add_test(NAME ${name} COMMAND test_cuda_masks)
  set_tests_properties(${name} PROPERTIES LABELS ci TIMEOUT 300
    ENVIRONMENT "CK_RUN_CASE=stochastic.bwd.bf16;SIMCUDA_ARCH=${arch};FLYMASK_TEST_TARGET=sm_${arch};\
FLYMASK_TEST_DIM=${dim};CK_DEFAULT_TIMEOUT=300;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endforeach()

# test_cli_files is of cli.cmake. The command finds the driver by LD_LIBRARY_PATH.
if(FLYMASK_CLI)
  flymask_test(cuda_command LABEL ci LIBRARIES test_cli_files)
  add_dependencies(test_cuda_command flymask simcuda)
endif()

# What scripts/gpu_suite.sh takes to a machine with a GPU: the same suites and the bench, with the runtime alone.
set(GPU_SUPPORT)
foreach(name support guard oracle oracle_backward oracle_score handmade call_case backward_case merge_case score_bodies
    score_formulas scene_tensors selection_case cuda_call cuda_kernel cuda_case)
  list(APPEND GPU_SUPPORT support/${name}.c)
endforeach()
add_library(gpu_support STATIC EXCLUDE_FROM_ALL ${GPU_SUPPORT})
target_include_directories(gpu_support PUBLIC support ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(gpu_support PUBLIC _GNU_SOURCE FLYMASK_NO_COMPILER)
target_link_libraries(gpu_support PUBLIC flymask_runtime_static PkgConfig::CHECK)
add_executable(gpu_masks test_cuda_masks.c library/scene_call.c library/scene.c library/windows.c library/blocks.c
  library/documents.c library/images.c)
target_link_libraries(gpu_masks PRIVATE gpu_support)
foreach(name features sa decode merge scores gated selection)
  add_executable(gpu_${name} test_cuda_${name}.c)
  target_link_libraries(gpu_${name} PRIVATE gpu_support ${CMAKE_DL_LIBS})
endforeach()
add_executable(gpu_bench ${PROJECT_SOURCE_DIR}/bench/gpu_bench.c)
target_compile_definitions(gpu_bench PRIVATE _GNU_SOURCE)
target_link_libraries(gpu_bench PRIVATE flymask_runtime_static)

# The archive, rehearsed with a few images from an empty directory. It is made of release builds.
if(FLYMASK_CLI AND NOT FLYMASK_SANITIZE)
  add_test(NAME gpu_suite COMMAND ${PROJECT_SOURCE_DIR}/scripts/gpu_suite.sh rehearse ${PROJECT_BINARY_DIR})
  set_tests_properties(gpu_suite PROPERTIES LABELS ci TIMEOUT 1200 ENVIRONMENT "XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endif()
