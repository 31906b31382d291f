# Strips debug information from the libraries that cpack is about to package, because cargo linked them and not CMake.
find_program(STRIP NAMES "${CPACK_NANOVLLM_STRIP}" strip REQUIRED)
file(GLOB_RECURSE shared "${CPACK_TEMPORARY_DIRECTORY}/*/libnanovllm.so.*")
file(GLOB_RECURSE static "${CPACK_TEMPORARY_DIRECTORY}/*/libnanovllm.a")
foreach(library IN LISTS shared static)
  if(NOT IS_SYMLINK "${library}")
    execute_process(COMMAND "${STRIP}" --strip-debug --remove-section=.comment "${library}" COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
