# mutant.KERNEL.TYPE.DIM.KIND: our own PTX with each of something removed in turn.
flymask_ptx_test(ptx_mutants)
function(flymask_mutant name suite label)
  add_test(NAME mutant.${name} COMMAND test_${suite})
  set_tests_properties(mutant.${name} PROPERTIES LABELS ${label} TIMEOUT 600
    ENVIRONMENT "CK_RUN_CASE=${name};CK_DEFAULT_TIMEOUT=600;XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endfunction()

foreach(kernel fly_forward.bf16.56 fly_forward.bf16.120 fly_forward.f32.56 fly_split.bf16.56 fly_split.f32.56 fly_backward_rows.bf16.56 fly_backward_keys.bf16.56 fly_backward_keys.bf16.120
    fly_backward_queries.bf16.56 fly_backward_queries.bf16.120 fly_backward_finish.bf16.56 fly_backward_keys.f32.56
    fly_backward_queries.f32.56 fly_backward_keys.tokens.bf16.56 fly_backward_keys.tokens.bf16.120 fly_backward_sink.sink.bf16.56)
  set(kinds wait commit barrier branch)
  if(kernel MATCHES "(forward|split|keys|queries|tokens)\\.bf16")
    list(APPEND kinds zeros)
  elseif(kernel MATCHES "rows|finish")
    list(APPEND kinds clamp)
  endif()
  foreach(kind IN LISTS kinds)
    set(label ci)
    if(kernel MATCHES "\\.120$" OR "${kernel}.${kind}" MATCHES "keys.*(f32|tokens).*branch") # the long ones by night
      set(label nightly)
    endif()
    flymask_mutant(${kernel}.${kind} ptx_mutants ${label})
  endforeach()
endforeach()

# mutant.TEMPLATE: what no mask is joined with, compiled without each of its checks in turn.
flymask_ptx_test(rows_mutants)
list(JOIN FLYMASK_PTX_FLAGS " " flags)
target_compile_definitions(test_rows_mutants PRIVATE "PTX_COMPILER=\"'${FLYMASK_CLANG}' ${flags}\"")
foreach(template merge gate project choose)
  flymask_mutant(${template} rows_mutants ci)
endforeach()
