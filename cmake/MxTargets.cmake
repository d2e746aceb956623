# One library per layer, one test executable per layer.

# Headers that most sources of a target with these DEPS include, read once: a fifth of the time that sanitizer builds take to
# compile. Only in those, so that other builds still show that each file includes what it uses.
function(mx_headers_once target)
  if(NOT MX_SANITIZE OR MX_FUZZ)
    return()
  endif()
  set(headers algorithm atomic cmath cstdint functional memory mutex string utility vector)
  list(TRANSFORM headers PREPEND "$<$<COMPILE_LANGUAGE:CXX>:<")
  list(TRANSFORM headers APPEND ">>")
  set(own "")
  if("${ARGN}" MATCHES "mx::base")
    set(own engine/device/device.h)
  elseif("${ARGN}" MATCHES "mx::")
    set(own engine/engine.h)
  endif()
  if("${ARGN}" MATCHES "mx::(ndarray|operators|optim|executor|kvstore|nn)")
    list(APPEND own ndarray/ndarray.h ndarray/launch.h)
  endif()
  if("${ARGN}" MATCHES "mx::(operators|optim|executor|kvstore|nn)")
    list(APPEND own operators/operators.h)
  endif()
  list(TRANSFORM own PREPEND "$<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/")
  list(TRANSFORM own APPEND ">")
  list(APPEND headers ${own})
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# mx_add_library(<name> SOURCES ... DEPS ... [PRIVATE_DEPS ...])
# Makes the static (or, with BUILD_SHARED_LIBS, shared) library mx_<name> with the alias mx::<name>.
# Layers below go in DEPS, so that the link order is the layer order; scripts/check_layers.py checks it.
function(mx_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target mx_${name})
  add_library(${target} ${ARG_SOURCES})
  add_library(mx::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:include/mxrun>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS} $<BUILD_INTERFACE:mx_flags>)
  mx_headers_once(${target} ${ARG_DEPS})
  if(MX_SANITIZE AND NOT MX_FUZZ)
    # Loops over elements are most of what sanitizers make slow to compile. These checks of UBSan are the dearest; what
    # they would find is a null or wild access, which AddressSanitizer finds. (No kernel has virtual functions.)
    foreach(source IN LISTS ARG_SOURCES)
      if(source MATCHES "^kernels/")
        set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
        if(MX_SANITIZE MATCHES "undefined")
          set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=null,object-size,vptr)
        endif()
      endif()
    endforeach()
  endif()
  set_property(GLOBAL APPEND PROPERTY MX_LIBRARIES ${target})
endfunction()

# Of the sources of tests and examples optimisation makes slow compiles and little else; the libraries keep it.
# OPTIMISED: not so under sanitizers, because these sources do the work that takes the program's time.
function(mx_compile_fast target)
  cmake_parse_arguments(ARG "OPTIMISED" "" "" ${ARGN})
  if(MX_SANITIZE MATCHES "undefined" AND NOT MX_FUZZ)
    # A third of the compile time, for code that nobody ships.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
  endif()
  if(MX_SANITIZE AND NOT ARG_OPTIMISED)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  elseif(NOT MX_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

# mx_add_test(<name> SOURCES ... DEPS ... [LABELS ...] [TIMEOUT seconds] [OPTIMISED] [SERIAL])
# OPTIMISED: see mx_compile_fast. SERIAL: none of its tests starts a thread, nor does what they call: ThreadSanitizer has
# nothing to find there, and the program is not built for it.
# A GoogleTest executable in <build>/tests; each TEST becomes one ctest entry. Its label begins with the name of its
# folder, which is that of the layer, and ends with the labels given: ctest -L '^engine' -LE model.
function(mx_add_test name)
  cmake_parse_arguments(ARG "OPTIMISED;SERIAL" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main mx_flags)
  if(ARG_OPTIMISED)
    mx_compile_fast(${name} OPTIMISED)
    target_precompile_headers(${name} PRIVATE ${MX_TEST_HEADERS})
  else()
    mx_compile_fast(${name})
    mx_test_headers_once(${name} ${ARG_DEPS})
  endif()
  if(ARG_SERIAL AND MX_SANITIZE MATCHES "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  # (One label of several words: lists do not survive what follows.)
  list(JOIN ARG_LABELS "-" words)
  string(JOIN "-" label ${folder} ${words})
  # A parameter has its name in the test already; its value as well would make names of several lines.
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS ${label})
  set_property(GLOBAL APPEND PROPERTY MX_TEST_PROGRAMS ${name})
endfunction()

# mx_add_example(<name> SOURCES ... DEPS ...)
# A program in <build>/examples.
function(mx_add_example name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} mx_flags)
  mx_compile_fast(${name})
endfunction()

# The executables that a folder of the tree and its subfolders define, but for those that are told to stay here
# (MX_STAYS_HERE), with whatever large library they measure.
function(mx_executables_in folder out)
  set(found "")
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(stays ${target} MX_STAYS_HERE)
    if(type STREQUAL EXECUTABLE AND NOT stays)
      list(APPEND found ${target})
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    mx_executables_in(${subfolder} more)
    list(APPEND found ${more})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Writes <build>/programs.txt, one "tests <path>" or "benchmarks <path>" per line. scripts/gpu_bundle.sh
# packs what it names, so that a new test or benchmark travels without another list to keep.
function(mx_write_program_list)
  get_property(tests GLOBAL PROPERTY MX_TEST_PROGRAMS)
  set(benchmarks "")
  if(MX_BENCHMARKS AND IS_DIRECTORY ${PROJECT_SOURCE_DIR}/benchmarks)
    mx_executables_in(${PROJECT_SOURCE_DIR}/benchmarks benchmarks)
  endif()
  set(lines "")
  foreach(kind tests benchmarks)
    foreach(program IN LISTS ${kind})
      string(APPEND lines "${kind} $<TARGET_FILE:${program}>\n")
    endforeach()
  endforeach()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/programs.txt CONTENT "${lines}")
endfunction()
