# The packages of Debian, a component each:
#
#   libnanovllm0          what programs need to run
#   libnanovllm-dev       what they need to be built
#   libnanovllm0-dbgsym   what debuggers need
#   nanovllm              the program of that name, where it is built
#   nanovllm-server       the HTTP server, where NANOVLLM_SERVER names it
#   python3-nanovllm      the binding for Python
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES OFF) # what is installed is stripped already
set(doc "${CMAKE_INSTALL_DATADIR}/doc")
set(same_version "libnanovllm${abi} (= ${PROJECT_VERSION})")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(cmake/debian/changelog.in "${PROJECT_BINARY_DIR}/debian/changelog" @ONLY)
# -n, so that the same tree gives the same bytes.
find_program(GZIP gzip REQUIRED)
execute_process(COMMAND "${GZIP}" -9nf "${PROJECT_BINARY_DIR}/debian/changelog" COMMAND_ERROR_IS_FATAL ANY)
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()

# debian_package(COMPONENT PACKAGE SECTION DEPENDS DESCRIPTION): a component and its license and changelog, which each package has.
macro(debian_package component package section depends description)
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  list(REMOVE_DUPLICATES CPACK_COMPONENTS_ALL)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${description}")
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${doc}/${package}" RENAME copyright COMPONENT ${component})
  install(FILES "${PROJECT_BINARY_DIR}/debian/changelog.gz" DESTINATION "${doc}/${package}" COMPONENT ${component})
endmacro()

debian_package(runtime "libnanovllm${abi}" libs "" "A C library that runs language models from Hugging Face folders and
GGUF files, with continuous batching and a paged KV cache.
.
This package has the shared library.")
# CPack's own shlibs come with scripts that call ldconfig; a trigger does it.
file(WRITE "${PROJECT_BINARY_DIR}/debian/shlibs" "libnanovllm ${abi} libnanovllm${abi} (>= ${PROJECT_VERSION})\n")
file(WRITE "${PROJECT_BINARY_DIR}/debian/triggers" "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/debian/shlibs;${PROJECT_BINARY_DIR}/debian/triggers")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(CMAKE_CROSSCOMPILING)
  # dpkg-shlibdeps knows the libraries of this machine alone. tests/package/glibc.sh checks the version.
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.34), libgcc-s1 (>= 4.2)")
else()
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
endif()
debian_package(development libnanovllm-dev libdevel "${same_version}" "This package has headers for C and C++, the static library, and files
for pkg-config and CMake.")
if(NOT installed STREQUAL stage)
  # Debuggers look there by the build id of the library.
  install(
    CODE "
      execute_process(COMMAND readelf -n \"${installed}/${shared_file}\" OUTPUT_VARIABLE notes COMMAND_ERROR_IS_FATAL ANY)
      string(REGEX MATCH \"Build ID: (..)([0-9a-f]+)\" found \"\${notes}\")
      file(INSTALL \"${installed}/${debug_file}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/debug/.build-id/\${CMAKE_MATCH_1}\"
           RENAME \"\${CMAKE_MATCH_2}.debug\" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)"
    COMPONENT debug)
  debian_package(debug "libnanovllm${abi}-dbgsym" debug "${same_version}" "This package has the debug information of the shared library.")
endif()
if(NANOVLLM_BUILD_PROGRAM)
  debian_package(tool nanovllm utils "${same_version}, libc6, libgcc-s1" "This package has the program nanovllm, which chats, completes prompts,
and measures models from Hugging Face folders and GGUF files.")
endif()
if(NANOVLLM_SERVER)
  debian_package(server nanovllm-server net "${same_version}, libc6" "This package has an HTTP server with the API of OpenAI: chat,
completions and embeddings, metrics, and a chat page.")
  install(PROGRAMS "${NANOVLLM_SERVER}" DESTINATION "${CMAKE_INSTALL_BINDIR}" RENAME nanovllm-server COMPONENT server)
  configure_file(cmake/debian/nanovllm-server.1 "${PROJECT_BINARY_DIR}/debian/nanovllm-server.1" COPYONLY)
  execute_process(COMMAND "${GZIP}" -9nf "${PROJECT_BINARY_DIR}/debian/nanovllm-server.1" COMMAND_ERROR_IS_FATAL ANY)
  install(FILES "${PROJECT_BINARY_DIR}/debian/nanovllm-server.1.gz" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT server)
endif()
debian_package(python python3-nanovllm python "${same_version}, python3 (>= 3.10)" "This package has the binding for Python.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bindings/python/src/nanovllm" DESTINATION lib/python3/dist-packages COMPONENT python
        FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
