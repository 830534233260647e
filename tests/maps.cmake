# Mask programs and block maps. map_soundness looks at more than 10^6 (mask, tile) pairs, map_fuzz at as many as time allows.
flymask_test(interval)
flymask_test(program)
flymask_test(map)
flymask_test(map_answers)
flymask_test(map_soundness)
flymask_test(map_fuzz)

# The analysis is asked directly, through LLVM's C interface.
execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE ANALYZE_HEADERS OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
flymask_test(analyze LIBRARIES ${LLVM_LIBRARY})
target_include_directories(test_analyze SYSTEM PRIVATE ${ANALYZE_HEADERS})

# Longer, and from other seeds: flymask_fuzz(label seconds seed)
function(flymask_fuzz label seconds seed)
  add_test(NAME map_fuzz_${label} COMMAND test_map_fuzz)
  math(EXPR limit "2 * ${seconds} + 60")
  set_tests_properties(map_fuzz_${label} PROPERTIES LABELS ${label} TIMEOUT ${limit} ENVIRONMENT "FLYMASK_FUZZ_SECONDS=${seconds};FLYMASK_FUZZ_SEED=${seed};CK_DEFAULT_TIMEOUT=${limit};XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
endfunction()
flymask_fuzz(ci 60 100000)
flymask_fuzz(nightly 600 200000)
