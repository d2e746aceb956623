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
      # ccache caches compilations with precompiled headers (tests/CMakeLists.txt) only if it may ignore their
      # macros.
      set(CMAKE_${lang}_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${MX_CCACHE})
    endif()
  endforeach()
endif()

# Sanitizers apply to everything that this build compiles, not only to the layers: a container that is checked
# in one translation unit and not in another gives false reports.
if(MX_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MX_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  if(MX_SANITIZE MATCHES "address" AND NOT MX_FUZZ)
    # These checks of UndefinedBehaviorSanitizer double the compile time of templates. AddressSanitizer finds null and
    # wild accesses (null, object-size, pointer-overflow) and most objects of a wrong type (vptr) by itself. It does not
    # find what `alignment` finds: only builds with MX_FUZZ, which keep all of them, look for misaligned accesses.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size,pointer-overflow,vptr,alignment>)
  endif()
  add_link_options(-fsanitize=${MX_SANITIZE})
  # lld links test programs in a quarter of the time. Builds without sanitizers must not use it: from -O2 on, GCC may split
  # off a cold part of a function that is empty. lld (14 does it) then takes the unwind information of the empty part for
  # the function that follows at the same address, and an exception that passes there ends the program.
  find_program(MX_LLD ld.lld)
  if(MX_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The checks that sanitizers insert prevent the compiler from seeing which variables are initialised and
    # how large a string is, so these warnings would be false.
    foreach(warning maybe-uninitialized array-bounds stringop-overflow stringop-overread restrict)
      add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-${warning}>)
    endforeach()
  endif()
  if(MX_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns that ThreadSanitizer does not model fences. The code that is checked has no fences that order
    # data.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# libFuzzer's coverage also applies to everything; only the fuzz programs link its main function.
if(MX_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MX_FUZZ needs Clang, got ${CMAKE_CXX_COMPILER_ID}; use cmake --preset fuzz")
  endif()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

# Warnings apply only to our own sources, so they are properties of a target.
add_library(mx_flags INTERFACE)
# A forward() with other arguments (nn/module.h) hides the virtual function on purpose; Clang and GCC 13 warn of that.
target_compile_options(mx_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wno-overloaded-virtual>)
# In position-independent code, every function can be replaced from outside by default. That forbids inlining
# within the libraries and costs 10% of an operation's instructions.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Clang does not know the hint `#pragma GCC ivdep`. GCC knows it and still warns of misspelt pragmas.
  target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()
if(MX_WERROR)
  target_compile_options(mx_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
