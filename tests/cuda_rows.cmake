# What runs row by row on GPUs, and calls made of several launches: simcuda.WHAT.fwd|bwd.TYPE, a case of a suite each.
function(flymask_cuda_cases suite label)
  if(NOT TARGET test_${suite})
    add_executable(test_${suite} test_${suite}.c)
    target_link_libraries(test_${suite} PRIVATE test_support simcuda)
  endif()
  foreach(case IN LISTS ARGN)
    add_test(NAME simcuda.${case} COMMAND test_${suite})
    set_tests_properties(simcuda.${case} PROPERTIES LABELS ${label} TIMEOUT 300
      ENVIRONMENT "CK_RUN_CASE=${case};CK_DEFAULT_TIMEOUT=300;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
  endforeach()
endfunction()

flymask_cuda_cases(cuda_merge ci merge.fwd.f32 merge.fwd.f16 merge.fwd.bf16 merge.bwd.f32 merge.bwd.f16 merge.bwd.bf16 merge.rest)
flymask_cuda_cases(cuda_decode ci decode.fwd.bf16 decode.fwd.f32 decode_dims.fwd.bf16 decode_dims.fwd.f32)
flymask_cuda_cases(cuda_decode nightly decode.fwd.f16 decode_dims.fwd.f16)
