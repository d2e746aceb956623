# Compiler settings shared by every target.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

find_program(MX_CCACHE ccache)
if(MX_CCACHE)
  foreach(lang CXX CUDA)
    if(NOT DEFINED CMAKE_${lang}_COMPILER_LAUNCHER)
      # Headers that are compiled beforehand (tests/CMakeLists.txt) are cached only when it may trust their macros.
      set(CMAKE_${lang}_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${MX_CCACHE})
    endif()
  endforeach()
endif()

# Sanitizers go on everything that this build compiles, not only on the layers: a container that is
# checked in one translation unit and not in another gives false reports.
if(MX_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MX_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  if(MX_SANITIZE MATCHES "address" AND NOT MX_FUZZ)
    # Dear to compile; what they would find is a null or wild access, which AddressSanitizer finds.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size>)
  endif()
  add_link_options(-fsanitize=${MX_SANITIZE})
  # Links test programs in a quarter of the time.
  find_program(MX_LLD ld.lld)
  if(MX_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The checks that sanitizers put in hide from the compiler what is initialised, and how large a string is.
    foreach(warning maybe-uninitialized array-bounds stringop-overflow stringop-overread restrict)
      add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-${warning}>)
    endforeach()
  endif()
  if(MX_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns that fences are not modelled; the code under the sanitizer has none that order data.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# Coverage for libFuzzer goes on everything as well; the programs themselves add its main function.
if(MX_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MX_FUZZ needs Clang, got ${CMAKE_CXX_COMPILER_ID}; use cmake --preset fuzz")
  endif()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

# Warnings are for our own sources only, so they ride on a target.
add_library(mx_flags INTERFACE)
target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor>)
# Position-independent code must otherwise leave every function replaceable from outside, which forbids
# inlining within the libraries: 10% of an operation's instructions.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # `#pragma GCC ivdep` is a hint that Clang does not know. (GCC, which does, warns of misspelt ones.)
  target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()
if(MX_WERROR)
  target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
