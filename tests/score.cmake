# Score modifiers: their mathematics, their derivatives, the library, the kernels.
set(SCORE_MATH ${PROJECT_SOURCE_DIR}/compiler/templates/score_math.c)
set(SCORE_MATH_FLAGS -std=gnu17 -O2 -fPIC -shared -fno-math-errno)
add_custom_command(OUTPUT score_math_plain.so score_math_fused.so
  COMMAND ${FLYMASK_CLANG} ${SCORE_MATH_FLAGS} -ffp-contract=off ${SCORE_MATH} -o score_math_plain.so
  COMMAND ${FLYMASK_CLANG} ${SCORE_MATH_FLAGS} -ffp-contract=fast -march=x86-64-v3 ${SCORE_MATH} -o score_math_fused.so
  DEPENDS ${SCORE_MATH} VERBATIM COMMENT "Functions of score modifiers, natively")
add_custom_target(score_math_native DEPENDS score_math_plain.so score_math_fused.so)
flymask_test(score_math)
add_dependencies(test_score_math score_math_native)
add_test(NAME score_math_exhaustive COMMAND test_score_math)
set_tests_properties(score_math_exhaustive PROPERTIES LABELS nightly TIMEOUT 3600
  ENVIRONMENT "FLYMASK_EXHAUSTIVE=1;CK_RUN_CASE=exhaustive;CK_DEFAULT_TIMEOUT=3600")

# Modifiers as ordinary C; those of the tests with double in the place of float, to be differentiated by differences.
file(GLOB SCORES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scores/*.c)
file(GLOB TEST_SCORES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/scores/*.c)
foreach(source IN LISTS SCORES TEST_SCORES)
  get_filename_component(name ${source} NAME_WE)
  add_library(native_score_${name} MODULE ${source})
  set_target_properties(native_score_${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET default)
  target_compile_options(native_score_${name} PRIVATE -fwrapv -O1)
  target_include_directories(native_score_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(native_score_${name} PRIVATE m)
  add_dependencies(test_support native_score_${name})
endforeach()
foreach(source IN LISTS TEST_SCORES)
  get_filename_component(name ${source} NAME_WE)
  target_compile_options(native_score_${name} PRIVATE -Wno-keyword-macro -include ${CMAKE_CURRENT_SOURCE_DIR}/scores/in_double.h)
endforeach()

# As a user's compiler sees them.
set(SCORE_COMPILERS)
foreach(compiler ${CMAKE_C_COMPILER} ${FLYMASK_CLANG})
  get_filename_component(name ${compiler} NAME)
  if(name IN_LIST SCORE_COMPILERS) # one compiler builds all
    continue()
  endif()
  list(APPEND SCORE_COMPILERS ${name})
  add_test(NAME score_sources_${name} COMMAND ${compiler} -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only
    -I${PROJECT_SOURCE_DIR}/include ${SCORES})
  set_tests_properties(score_sources_${name} PROPERTIES LABELS quick TIMEOUT 60)
endforeach()

flymask_test(score)
flymask_test(score_library)
flymask_test(score_attention SECONDS 600)
if(FLYMASK_CLI)
  flymask_test(score_command LIBRARIES test_cli_files)
  add_dependencies(test_score_command flymask)
endif()

# Random modifiers; longer, and from other seeds: flymask_score_fuzz(label seconds seed)
flymask_test(score_fuzz)
function(flymask_score_fuzz label seconds seed)
  add_test(NAME score_fuzz_${label} COMMAND test_score_fuzz)
  math(EXPR limit "2 * ${seconds} + 60")
  set_tests_properties(score_fuzz_${label} PROPERTIES LABELS ${label} TIMEOUT ${limit} ENVIRONMENT
    "FLYMASK_FUZZ_SECONDS=${seconds};FLYMASK_FUZZ_SEED=${seed};CK_DEFAULT_TIMEOUT=${limit}")
endfunction()
flymask_score_fuzz(ci 30 1000)
flymask_score_fuzz(nightly 600 2000)
