# cmake -DSOURCES=FILE;... -DROOT=DIRECTORY -DOUT=FILE -P build_id.cmake: writes OUT, a C source with a hash of SOURCES, their
# names below ROOT included. OUT keeps its time where nothing changed.
set(all)
list(SORT SOURCES)
foreach(source IN LISTS SOURCES)
  file(SHA256 ${source} hash)
  file(RELATIVE_PATH name ${ROOT} ${source})
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
/* Made by cmake/build_id.cmake. */
#include "runtime/runtime.h"

const uint64_t flyi_build_id = UINT64_C(0x@id@);
]] @ONLY)
