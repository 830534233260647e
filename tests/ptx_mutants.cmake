# mutant.KERNEL.TYPE.DIM.KIND: our own PTX with each of something removed in turn.
flymask_ptx_test(ptx_mutants)
foreach(kernel fly_forward.bf16.56 fly_forward.bf16.120 fly_forward.f32.56 fly_split.bf16.56 fly_split.f32.56 fly_backward_rows.bf16.56 fly_backward_keys.bf16.56 fly_backward_keys.bf16.120
    fly_backward_queries.bf16.56 fly_backward_queries.bf16.120 fly_backward_finish.bf16.56 fly_backward_keys.f32.56
    fly_backward_queries.f32.56)
  set(kinds wait commit barrier branch)
  if(kernel MATCHES "(forward|split|keys|queries)\\.bf16")
    list(APPEND kinds zeros)
  elseif(kernel MATCHES "rows|finish")
    list(APPEND kinds clamp)
  endif()
  foreach(kind IN LISTS kinds)
    set(label ci)
    if(kernel MATCHES "\\.120$" OR "${kernel}.${kind}" STREQUAL fly_backward_keys.f32.56.branch) # the long ones by night
      set(label nightly)
    endif()
    add_test(NAME mutant.${kernel}.${kind} COMMAND test_ptx_mutants)
    set_tests_properties(mutant.${kernel}.${kind} PROPERTIES LABELS ${label} TIMEOUT 600
      ENVIRONMENT "CK_RUN_CASE=${kernel}.${kind};CK_DEFAULT_TIMEOUT=600;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
  endforeach()
endforeach()
