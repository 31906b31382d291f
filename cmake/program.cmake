# The program nanovllm, which loads the shared library, and its man pages and completions for shells. Sets nanovllm_program.
#
# Cargo is asked for the program and for the library with one set of packages: see cargo_packages. A build for another system makes the
# pages on this machine, where their generator runs.
set(program "${PROJECT_BINARY_DIR}/bin/nanovllm${CMAKE_EXECUTABLE_SUFFIX}")
set(manual "${PROJECT_BINARY_DIR}/manual")
set(cargo_common ${CMAKE_COMMAND} -E env --unset=MAKEFLAGS "CARGO_TARGET_DIR=${NANOVLLM_CARGO_TARGET_DIR}" ${cargo_environment} ${CARGO})
set(alone --release --locked --package nanovllm-cli --no-default-features)
set(manual_generator "${NANOVLLM_CARGO_TARGET_DIR}/release/examples/manual")
if(CMAKE_HOST_WIN32)
  string(APPEND manual_generator .exe)
endif()

if(NANOVLLM_LINK_BY_CC)
  # What is linked by the C compiler is the program alone, not the build scripts, which run on this machine.
  set(cargo_program COMMAND ${cargo_common} rustc ${alone} ${cargo_target} --bin nanovllm -- -C "linker=${CMAKE_C_COMPILER}" -C linker-features=-lld
                    COMMAND ${cargo_common} build ${alone} --example manual)
elseif(cargo_target)
  set(cargo_program COMMAND ${cargo_common} build ${alone} ${cargo_target} --bin nanovllm COMMAND ${cargo_common} build ${alone} --example manual)
else()
  set(cargo_program COMMAND ${cargo_common} build --release --locked ${cargo_packages} --bin nanovllm --example manual)
endif()
add_custom_target(
  nanovllm_tool ALL
  ${cargo_program}
  COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/bin"
  COMMAND ${CMAKE_COMMAND} -E copy_if_different "${cargo_artifacts}/nanovllm${CMAKE_EXECUTABLE_SUFFIX}" "${program}"
  COMMAND "${manual_generator}" "${manual}"
  BYPRODUCTS "${program}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "cargo build --release --bin nanovllm"
  USES_TERMINAL VERBATIM)
add_dependencies(nanovllm_tool nanovllm_cargo)
add_executable(nanovllm_program IMPORTED GLOBAL)
set_target_properties(nanovllm_program PROPERTIES IMPORTED_LOCATION "${program}")
add_dependencies(nanovllm_program nanovllm_tool)

set(installed_program "${program}")
if(CMAKE_STRIP)
  set(installed_program "${PROJECT_BINARY_DIR}/stripped/nanovllm${CMAKE_EXECUTABLE_SUFFIX}")
  add_custom_command(
    OUTPUT "${installed_program}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/stripped"
    COMMAND ${CMAKE_STRIP} --strip-all --remove-section=.comment -o "${installed_program}" "${program}"
    DEPENDS "${program}"
    COMMENT "Taking the debug information out of the program"
    VERBATIM)
  add_custom_target(nanovllm_program_stripped ALL DEPENDS "${installed_program}")
  add_dependencies(nanovllm_program_stripped nanovllm_tool)
endif()
if(NANOVLLM_INSTALL)
  install(PROGRAMS "${installed_program}" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tool)
  if(NANOVLLM_DEBIAN)
    # Its manual pages are compressed.
    install(
      CODE "
        file(GLOB pages \"${manual}/*.1\")
        file(INSTALL \${pages} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/man/man1\")
        list(TRANSFORM pages REPLACE \".*/\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/man/man1/\")
        execute_process(COMMAND gzip -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT tool)
  elseif(NOT WIN32)
    install(DIRECTORY "${manual}/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tool FILES_MATCHING PATTERN "*.1")
  endif()
  if(NOT WIN32)
    install(FILES "${manual}/nanovllm.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME nanovllm COMPONENT tool)
    install(FILES "${manual}/nanovllm.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT tool)
    # zsh of Debian looks for what packages bring in a folder of its own. The component zsh is a part of archives and of `cmake --install`.
    install(FILES "${manual}/_nanovllm" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT zsh)
    install(FILES "${manual}/_nanovllm" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions" COMPONENT tool EXCLUDE_FROM_ALL)
  endif()
endif()
