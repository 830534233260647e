# AArch64: images ahead of time; the runtime library, cross-built, and its suites under qemu: skipped where
# `scripts/aarch64.sh setup` has not been run.
flymask_test(ahead)
flymask_test(relocate)

if(FLYMASK_CLI AND NOT FLYMASK_SANITIZE)
  set(CROSS ${CMAKE_CURRENT_SOURCE_DIR}/runtime/aarch64.sh)
  add_test(NAME aarch64.build COMMAND ${CROSS} build ${PROJECT_BINARY_DIR})
  set_tests_properties(aarch64.build PROPERTIES LABELS "ci;nightly" TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_SETUP aarch64)
  # A share of each suite's calls (support/call_case.h), and all of them.
  foreach(suite images attention_shapes attention_rows attention_numbers split backward_shapes backward_rows merge)
    add_test(NAME aarch64.${suite} COMMAND ${CROSS} run ${PROJECT_BINARY_DIR} ${suite})
    set_tests_properties(aarch64.${suite} PROPERTIES LABELS ci TIMEOUT 600 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED aarch64
      ENVIRONMENT FLYMASK_TEST_SHARE=8)
  endforeach()
  foreach(suite base permutation images attention_shapes attention_rows attention_numbers attention_errors split backward_shapes
      backward_rows backward_numbers backward_errors merge gated gated_project moba moba_packed)
    add_test(NAME aarch64.${suite}.whole COMMAND ${CROSS} run ${PROJECT_BINARY_DIR} ${suite})
    set_tests_properties(aarch64.${suite}.whole PROPERTIES LABELS nightly TIMEOUT 1800 SKIP_RETURN_CODE 77 FIXTURES_REQUIRED aarch64)
  endforeach()
endif()
