# The mask library against formulations of its own: each mask as ordinary C, and compiled; its sources.
set(LIBRARY_SCENES library/scene.c library/windows.c library/blocks.c library/documents.c library/images.c)
flymask_test(library SOURCES ${LIBRARY_SCENES})
flymask_test(library_compiled LABEL ci SECONDS 900 SOURCES library/scene_call.c ${LIBRARY_SCENES})
set_property(TEST library_compiled APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)

set(LIBRARY ${CMAKE_CURRENT_SOURCE_DIR}/library)
add_test(NAME library_sources COMMAND ${LIBRARY}/sources.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER} ${FLYMASK_CLANG})
add_test(NAME library_extremes COMMAND ${LIBRARY}/extremes.sh ${PROJECT_SOURCE_DIR} ${FLYMASK_CLANG})
set_tests_properties(library_sources library_extremes PROPERTIES LABELS quick TIMEOUT 300)
