# Builds the source tree that this port is part of: vcpkg install nanovllm --overlay-ports=cmake/vcpkg
#
# cargo is found in PATH or ~/.cargo/bin; it builds for release.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)
set(VCPKG_POLICY_MISMATCHED_NUMBER_OF_BINARIES enabled)

# vcpkg names the system and not the processor, which CMake then takes for a cross build.
if(VCPKG_TARGET_ARCHITECTURE STREQUAL "x64")
  set(rust_target x86_64-unknown-linux-gnu)
elseif(VCPKG_TARGET_ARCHITECTURE STREQUAL "arm64")
  set(rust_target aarch64-unknown-linux-gnu)
else()
  message(FATAL_ERROR "nanovllm is built for x64 and arm64, not for ${VCPKG_TARGET_ARCHITECTURE}")
endif()
set(cuda OFF)
if("cuda" IN_LIST FEATURES)
  set(cuda ON)
endif()
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DNANOVLLM_BUILD_TESTS=OFF -DNANOVLLM_BUILD_EXAMPLES=OFF -DNANOVLLM_BUILD_PROGRAM=OFF -DNANOVLLM_CUDA=${cuda}
          -DNANOVLLM_RUST_TARGET=${rust_target} "-DNANOVLLM_CARGO_TARGET_DIR=${CURRENT_BUILDTREES_DIR}/cargo")
# The target install does not build.
vcpkg_cmake_build()
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/nanovllm)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
