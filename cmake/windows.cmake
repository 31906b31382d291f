# nanovllm.dll, linked from the static library: a DLL that rustc links exports the C functions of dependencies too. Sets static_libs,
# import_libraries, shared_file and soname.
set(shared_file nanovllm.dll)
set(soname nanovllm.dll)
# `cargo rustc --release -p nanovllm-capi --crate-type staticlib -- --print native-static-libs` for the target.
set(static_libs ws2_32 ntdll userenv bcrypt dbghelp ole32 oleaut32 kernel32)

list(TRANSFORM symbols PREPEND "    " OUTPUT_VARIABLE exports)
list(JOIN exports "\n" exports)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/nanovllm.def" CONTENT "LIBRARY nanovllm.dll\nEXPORTS\n@exports@\n" @ONLY)
string(REPLACE "." "," version_words "${version},0")
configure_file("${PROJECT_SOURCE_DIR}/cmake/nanovllm.rc.in" nanovllm.rc @ONLY)

# Where Wine finds what the tests load.
set(wine_libraries "${PROJECT_BINARY_DIR}/wine-libraries")

# An import library in the form of MSVC, which GNU's tools do not write: llvm-dlltool, or the one of zig.
find_program(NANOVLLM_DLLTOOL NAMES llvm-dlltool llvm-dlltool-19 llvm-dlltool-18 llvm-dlltool-16 llvm-dlltool-14)
mark_as_advanced(NANOVLLM_DLLTOOL)
set(import_libraries "${stage}/libnanovllm.dll.a")
set(msvc_import_library)
if(NANOVLLM_DLLTOOL)
  set(dlltool ${NANOVLLM_DLLTOOL})
  if(NANOVLLM_DLLTOOL MATCHES "zig$")
    list(APPEND dlltool dlltool)
  endif()
  list(APPEND import_libraries "${stage}/nanovllm.lib")
  set(msvc_import_library COMMAND ${dlltool} -m i386:x86-64 -D nanovllm.dll -d "${PROJECT_BINARY_DIR}/nanovllm.def" -l "${stage}/nanovllm.lib")
else()
  message(STATUS "No import library for MSVC: llvm-dlltool is not found")
endif()

list(TRANSFORM static_libs PREPEND "-l" OUTPUT_VARIABLE link_libraries)
set(cargo_staticlib ${cargo_build} --manifest-path "${PROJECT_SOURCE_DIR}/Cargo.toml" --crate-type staticlib)
list(TRANSFORM cargo_staticlib REPLACE "^build$" "rustc")
# rustc gives this target one section per object file and not one per function, so that the linker alone keeps a third more than is used.
list(APPEND cargo_staticlib --config "profile.release.lto='fat'" --config "profile.release.codegen-units=1")
add_custom_target(
  nanovllm_cargo ALL
  COMMAND ${cargo_staticlib}
  COMMAND ${CMAKE_COMMAND} -E make_directory "${stage}" "${wine_libraries}"
  COMMAND ${CMAKE_COMMAND} -E copy_if_different "${cargo_artifacts}/libnanovllm_capi.a" "${stage}/libnanovllm.a"
  COMMAND ${CMAKE_RC_COMPILER} -O coff nanovllm.rc nanovllm.res.o
  COMMAND ${CMAKE_C_COMPILER} -shared -static -s -o "${stage}/${shared_file}" nanovllm.def nanovllm.res.o "${cargo_artifacts}/libnanovllm_capi.a"
          -Wl,--gc-sections,--dynamicbase,--nxcompat,--high-entropy-va "-Wl,--out-implib,${stage}/libnanovllm.dll.a" ${link_libraries}
  ${msvc_import_library}
  COMMAND ${CMAKE_COMMAND} -E copy_if_different "${stage}/${shared_file}" "${wine_libraries}/${shared_file}"
  BYPRODUCTS "${stage}/${shared_file}" "${stage}/libnanovllm.a" ${import_libraries}
  WORKING_DIRECTORY "${PROJECT_BINARY_DIR}"
  COMMENT "cargo rustc --release --crate-type staticlib, and nanovllm.dll"
  USES_TERMINAL VERBATIM)

# The tests run under Wine, in a folder of their own. Wine finds libraries by WINEPATH, also one that its older releases lack.
if(CMAKE_CROSSCOMPILING_EMULATOR)
  if(NANOVLLM_BUILD_TESTS)
    add_library(bcryptprimitives SHARED tests/wine/bcryptprimitives.c)
    target_link_libraries(bcryptprimitives PRIVATE advapi32)
    set_target_properties(bcryptprimitives PROPERTIES PREFIX "" RUNTIME_OUTPUT_DIRECTORY "${wine_libraries}")
  endif()
  string(REPLACE "/" "\\" wine_path "Z:${wine_libraries}")
  set(wine ${CMAKE_COMMAND} -E env "WINEPREFIX=${PROJECT_BINARY_DIR}/wine" WINEDEBUG=-all "WINEDLLOVERRIDES=mscoree,mshtml=")
  list(JOIN wine "\" \"" in_wine)
  string(CONCAT around_tests
         "set(CTEST_CUSTOM_PRE_TEST [[\"@in_wine@\" \"@PROJECT_SOURCE_DIR@/tests/wine/server.sh\" start \"@CMAKE_CROSSCOMPILING_EMULATOR@\"]])\n"
         "set(CTEST_CUSTOM_POST_TEST [[\"@in_wine@\" \"@PROJECT_SOURCE_DIR@/tests/wine/server.sh\" stop]])\n")
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/CTestCustom.cmake" CONTENT "${around_tests}" @ONLY)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${wine} "WINEPATH=${wine_path}" ${CMAKE_CROSSCOMPILING_EMULATOR})
endif()
