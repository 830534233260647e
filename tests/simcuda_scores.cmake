# simcuda.score.NAME.fwd|bwd.TYPE: every score modifier of scores/ in the CUDA kernels, on tests/simcuda; simcuda.modifiers.TYPE,
# simcuda.modifier_dimensions.TYPE and simcuda.sinks.TYPE: modifiers of other kinds, sinks, and the calls that they go with.
add_executable(test_cuda_scores test_cuda_scores.c)
target_link_libraries(test_cuda_scores PRIVATE test_support simcuda)

function(flymask_cuda_score_case name case label)
  add_test(NAME ${name} COMMAND test_cuda_scores)
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 600
    ENVIRONMENT "CK_RUN_CASE=${case};CK_DEFAULT_TIMEOUT=600;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endfunction()

set(cuda_scores t5_bias_2) # the causal half of t5_bias
foreach(source IN LISTS SCORES)
  get_filename_component(score ${source} NAME_WE)
  list(APPEND cuda_scores ${score})
endforeach()
foreach(score IN LISTS cuda_scores)
  foreach(direction fwd bwd)
    foreach(type bf16 f16 f32)
      set(label ci)
      if(type STREQUAL f16) # bf16's code but for the conversions
        set(label nightly)
      endif()
      flymask_cuda_score_case(simcuda.score.${score}.${direction}.${type} ${score}.${direction}.${type} ${label})
    endforeach()
  endforeach()
endforeach()
foreach(type bf16 f32)
  flymask_cuda_score_case(simcuda.modifiers.${type} modifiers.${type} ci)
  flymask_cuda_score_case(simcuda.sinks.${type} sinks.${type} ci)
endforeach()
flymask_cuda_score_case(simcuda.modifiers.f16 modifiers.f16 nightly)
flymask_cuda_score_case(simcuda.sinks.f16 sinks.f16 nightly)
foreach(type bf16 f16 f32)
  flymask_cuda_score_case(simcuda.modifier_dimensions.${type} dimensions.${type} nightly)
endforeach()
