# NVIDIA's wheels, as PyTorch brings them: below the folder nvidia/ of a Python, cu13/ has nearly all of CUDA 13, and what
# has a wheel of its own (cuDNN, NCCL, every part of CUDA 12) a folder of its own, each with include/ and lib/.

# ckpt_find_in_wheels(<package> HEADER <name> INCLUDE_DIR <variable> [LIBRARY <name> FILE <variable>]): sets the variables,
# in the cache, to what cu13/ or <package>/ has in the Python CKPT_PYTHON; header and library from one place, because they
# belong together. Leaves them as they are when there is none.
function(ckpt_find_in_wheels package)
  cmake_parse_arguments(PARSE_ARGV 1 find "" "HEADER;INCLUDE_DIR;LIBRARY;FILE" "")
  set(CKPT_PYTHON python3 CACHE STRING "Python whose NVIDIA wheels are used for what is nowhere else")
  execute_process(COMMAND ${CKPT_PYTHON} -c "import nvidia; print(';'.join(nvidia.__path__))"
    OUTPUT_VARIABLE wheels OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE none)
  if(NOT none EQUAL 0)
    return()
  endif()
  foreach(folder IN LISTS wheels)
    foreach(part cu13 ${package})
      if(EXISTS ${folder}/${part}/include/${find_HEADER} AND
         (NOT find_LIBRARY OR EXISTS ${folder}/${part}/lib/${find_LIBRARY}))
        set(${find_INCLUDE_DIR} ${folder}/${part}/include CACHE PATH "Where ${find_HEADER} is" FORCE)
        if(find_LIBRARY)
          set(${find_FILE} ${folder}/${part}/lib/${find_LIBRARY} CACHE FILEPATH "${find_LIBRARY}" FORCE)
        endif()
        return()
      endif()
    endforeach()
  endforeach()
endfunction()
