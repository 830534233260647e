# Masks as ordinary C, for brute force; the suites of the runtime's base.
file(GLOB MASKS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/masks/*.c)
foreach(source IN LISTS MASKS)
  get_filename_component(name ${source} NAME_WE)
  add_library(native_${name} MODULE ${source})
  set_target_properties(native_${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET default)
  target_compile_options(native_${name} PRIVATE -fwrapv -O2)
  target_include_directories(native_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  add_dependencies(test_support native_${name})
endforeach()

flymask_test(base)
flymask_test(permutation)
