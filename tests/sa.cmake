# Merging, Stochastic Attention, gates, selected blocks.
set(SA_SCENE sa/scene.c)
flymask_test(merge)
flymask_test(stochastic SOURCES ${SA_SCENE} LIBRARIES test_cli_files)
