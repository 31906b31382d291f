# Debian packages, by `cpack --config build/CPackConfig.cmake`: libnanovllm0 with the files that programs need to run,
# libnanovllm-dev with those that they need to be built, and nanovllm with the program of that name, if the examples are built.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libnanovllm)
# A publisher of packages sets an address: cpack -D CPACK_PACKAGE_CONTACT="Name <address>".
set(CPACK_PACKAGE_CONTACT "The libnanovllm authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};ALL;/")
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# CMake strips only files that it has linked itself.
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/strip.cmake")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "libnanovllm${abi}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libnanovllm-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libnanovllm${abi} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers for C and C++, the static library, pkg-config and CMake files.")
if(NANOVLLM_BUILD_EXAMPLES)
  list(APPEND CPACK_COMPONENTS_ALL tool)
  set(CPACK_DEBIAN_TOOL_PACKAGE_NAME nanovllm)
  set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_TOOL_PACKAGE_DEPENDS "libnanovllm${abi} (= ${PROJECT_VERSION}), libc6, libgcc-s1, libstdc++6")
  set(CPACK_COMPONENT_TOOL_DESCRIPTION "A program that answers prompts, chats, and measures a model's speed.")
endif()
include(CPack)
