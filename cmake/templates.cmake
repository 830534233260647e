# Kernel templates are C with clang's vector types: clang compiles them, whatever compiles the rest.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(FLYMASK_ISAS aarch64)
else()
  set(FLYMASK_ISAS x86-64 x86-64-v3 x86-64-v4)
endif()
# Clang would split explicit 512-bit vectors in two for x86-64-v4, unless told to prefer them.
set(FLYMASK_TEMPLATE_FLAGS -std=gnu17 -O3 -fPIC -fvisibility=hidden -ffp-contract=fast -Wall -Wextra -I${PROJECT_SOURCE_DIR}/include)
if(FLYMASK_ISAS STREQUAL aarch64)
  list(APPEND FLYMASK_TEMPLATE_FLAGS --target=aarch64-linux-gnu)
else()
  list(APPEND FLYMASK_TEMPLATE_FLAGS -mprefer-vector-width=512)
endif()
if(FLYMASK_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL Clang)
  list(APPEND FLYMASK_TEMPLATE_FLAGS -fsanitize=${FLYMASK_SANITIZE} -fno-sanitize=function -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g -O1)
endif()

# Those that become PTX when the library is built, which later devices run as well.
set(FLYMASK_PTX_FLAGS --target=nvptx64-nvidia-cuda -march=sm_80 --cuda-feature=+ptx70 -std=gnu17 -ffreestanding -O3 -ffp-contract=fast
  -fno-math-errno -fno-ident)

# flymask_template_objects(OUT source [BF16] [flags...]): one object for each ISA; a template names its symbols with FLYI_ISA.
# BF16: one more, for bf16 tensors where AVX512-BF16 multiplies them (-DFLYI_DOTS).
function(flymask_template_objects out source)
  cmake_parse_arguments(PARSE_ARGV 2 arg BF16 "" "")
  set(objects)
  set(isas ${FLYMASK_ISAS})
  if(arg_BF16 AND x86-64-v4 IN_LIST isas)
    list(APPEND isas x86-64-v4-bf16)
  endif()
  foreach(isa IN LISTS isas)
    string(REPLACE - _ suffix ${isa})
    set(march -march=${isa})
    if(isa STREQUAL x86-64-v4-bf16)
      set(march -march=x86-64-v4 -mavx512bf16 -DFLYI_DOTS)
    elseif(isa STREQUAL aarch64)
      set(march -march=armv8-a)
    endif()
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}_${suffix}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${FLYMASK_CLANG} ${FLYMASK_TEMPLATE_FLAGS} ${arg_UNPARSED_ARGUMENTS} ${march} -DFLYI_ISA=${suffix} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "Template ${name} for ${isa}")
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
