# Toolchain file: libflymask_runtime and its tests for AArch64, built on another machine (scripts/aarch64.sh says how):
#
#   cmake -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DFLYMASK_COMPILER=OFF -DFLYMASK_AARCH64_PACKAGES=DIRECTORY
#
# DIRECTORY holds arm64 packages of the distribution, unpacked: xxhash, and for the tests check. What is built is run by
# qemu-aarch64, where there is one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu ${FLYMASK_AARCH64_PACKAGES})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FLYMASK_AARCH64_PACKAGES)
set(ENV{PKG_CONFIG_LIBDIR} ${FLYMASK_AARCH64_PACKAGES}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${FLYMASK_AARCH64_PACKAGES})
find_program(FLYMASK_QEMU qemu-aarch64)
if(FLYMASK_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${FLYMASK_QEMU} -L /usr/aarch64-linux-gnu)
endif()
