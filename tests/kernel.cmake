# Forward attention against the double-precision oracle.

# The tile template compiled natively around each mask: visible to the sanitizers, as code compiled at run time is not.
set(TILE_FLAGS -std=gnu17 -O2 -fPIC -shared -fwrapv -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/compiler/templates)
if(FLYMASK_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL Clang)
  list(APPEND TILE_FLAGS -fsanitize=${FLYMASK_SANITIZE} -fno-sanitize-recover=all -g)
endif()
set(NATIVE_TILES)
foreach(source IN LISTS MASKS)
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/native_tile_${name}.so)
  set(template ${PROJECT_SOURCE_DIR}/compiler/templates/mask_tile.c)
  add_custom_command(OUTPUT ${object} COMMAND ${FLYMASK_CLANG} ${TILE_FLAGS} ${template} ${source} -o ${object}
    DEPENDS ${template} ${source} ${PROJECT_SOURCE_DIR}/compiler/templates/launch.h ${PROJECT_SOURCE_DIR}/include/flymask/mask.h
    VERBATIM COMMENT "Tile template around ${name}")
  list(APPEND NATIVE_TILES ${object})
endforeach()
add_custom_target(native_tiles DEPENDS ${NATIVE_TILES})
add_dependencies(test_support native_tiles)

# NULL in the place of an object.
flymask_test(null)

flymask_test(attention_shapes)
flymask_test(attention_rows)
flymask_test(attention_numbers)
flymask_test(split)
flymask_test(sizes)
flymask_test(places)
flymask_test(attention_errors)
flymask_test(attention_masks)
flymask_test(attention_data)
flymask_references(attention_data)
