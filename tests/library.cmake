# The mask library against formulations of its own: each mask as ordinary C, and compiled.
set(LIBRARY_SCENES library/scene.c library/windows.c library/blocks.c library/documents.c library/images.c)
flymask_test(library SOURCES ${LIBRARY_SCENES})
add_test(NAME library_sources COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/library/sources.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER} ${FLYMASK_CLANG})
set_tests_properties(library_sources PROPERTIES LABELS quick TIMEOUT 300)
flymask_test(library_compiled SOURCES ${LIBRARY_SCENES})
set_property(TEST library_compiled APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
