# One library per layer, one test executable per layer.

# Precompiles headers that most sources of a library include. Only in builds with MX_UNITY, for the libraries of which many
# sources are still compiled separately. Other builds do without, so they show that each file includes what it uses.
function(mx_headers_once target)
  if(NOT MX_UNITY)
    return()
  endif()
  set(headers algorithm atomic cmath cstdint functional memory mutex string utility vector)
  list(TRANSFORM headers PREPEND "$<$<COMPILE_LANGUAGE:CXX>:<")
  list(TRANSFORM headers APPEND ">>")
  list(TRANSFORM ARGN PREPEND "$<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE own)
  list(TRANSFORM own APPEND ">")
  target_precompile_headers(${target} PRIVATE ${headers} ${own})
endfunction()

# Compiles the sources of a target several at a time. Their common headers are then compiled once; they are half of what
# tests and most of what sanitizer builds compile. Names in unnamed namespaces must therefore be unique within a target,
# except in sources with the property SKIP_UNITY_BUILD_INCLUSION, which are compiled separately.
function(mx_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC mistakes the sources that are included in a unity file for headers.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  # Highway includes these sources by name and compiles each several times, so they must stay separate.
  mx_vector_sources(vector_sources ${ARGN})
  set_source_files_properties(${vector_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Sets `result` to those of the sources that have vector kernels.
function(mx_vector_sources result)
  set(found "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    if(EXISTS ${path})
      file(STRINGS ${path} self REGEX "HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
      if(self)
        list(APPEND found ${source})
      endif()
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# mx_add_library(<name> SOURCES ... DEPS ... [PRIVATE_DEPS ...])
# Adds the static (or, with BUILD_SHARED_LIBS, shared) library mx_<name> with the alias mx::<name>.
# DEPS lists the layers below, so that the link order is the layer order; scripts/check_layers.py checks it.
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
  if(MX_UNITY)
    mx_unite(${target} ${ARG_SOURCES})
  endif()
  if(MX_SANITIZE MATCHES "address" AND NOT MX_FUZZ AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Every vector is a variable with a scope of its own. To look for uses after its end quadruples the compile time.
    mx_vector_sources(vector_sources ${ARG_SOURCES})
    set_property(SOURCE ${vector_sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize-address-use-after-scope)
  endif()
  set_property(GLOBAL APPEND PROPERTY MX_LIBRARIES ${target})
endfunction()

# For sources of tests and examples, optimisation makes compiles slow and gains little; the libraries stay optimised.
# OPTIMISED: keep the optimisation under sanitizers, because these sources do most of the program's work.
function(mx_compile_fast target)
  cmake_parse_arguments(ARG "OPTIMISED" "" "" ${ARGN})
  if(MX_SANITIZE MATCHES "undefined" AND NOT MX_FUZZ)
    # These checks take a third of the compile time, and this code is not shipped.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
  endif()
  if(MX_SANITIZE AND NOT ARG_OPTIMISED)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  elseif(NOT MX_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

# Makes each suite of a GoogleTest executable one test, because starting a program, above all with a sanitizer, takes
# longer than most tests.
function(mx_discover_suites name label alone)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  add_custom_command(TARGET ${name} POST_BUILD BYPRODUCTS ${file} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}> -D OUTPUT=${file} -D TIMEOUT=900 -D LABEL=${label}
      -D "ALONE=${alone}" -P ${PROJECT_SOURCE_DIR}/cmake/MxDiscoverSuites.cmake)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  file(WRITE ${include}
    "if(EXISTS \"${file}\")\n  include(\"${file}\")\nelse()\n  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()

# mx_add_test(<name> SOURCES ... DEPS ... [LABELS ...] [TIMEOUT seconds] [OPTIMISED] [SERIAL] [VALUES]
#   [ALONE suite ...])
# ALONE: suites whose tests each need their own process, because they count everything that the process has created.
# OPTIMISED: see mx_compile_fast. SERIAL: neither the tests nor the code they call starts a thread, so ThreadSanitizer
# cannot find anything, and the program is not built for it. VALUES: the same, because the tests compare values of functions
# that other programs call on several threads.
# Adds a GoogleTest executable in <build>/tests; each TEST (with MX_TEST_SUITES each suite) becomes one ctest entry. Its label
# begins with the name of its folder, which is the layer's, and ends with the given labels: ctest -L '^engine' -LE model.
function(mx_add_test name)
  cmake_parse_arguments(ARG "OPTIMISED;SERIAL;VALUES" "TIMEOUT" "SOURCES;DEPS;LABELS;ALONE" ${ARGN})
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
  mx_unite(${name} ${ARG_SOURCES})
  if((ARG_SERIAL OR ARG_VALUES) AND MX_SANITIZE MATCHES "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  # Several words are joined to one label, because the commands below do not preserve lists.
  list(JOIN ARG_LABELS "-" words)
  string(JOIN "-" label ${folder} ${words})
  if(MX_TEST_SUITES)
    mx_discover_suites(${name} ${label} "${ARG_ALONE}")
  else()
    # The test name already contains the name of a parameter; its value would make names of several lines.
    gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS ${label})
  endif()
  set_property(GLOBAL APPEND PROPERTY MX_TEST_PROGRAMS ${name})
endfunction()

# mx_add_example(<name> SOURCES ... DEPS ...)
# Adds a program in <build>/examples.
function(mx_add_example name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} mx_flags)
  mx_compile_fast(${name})
endfunction()

# Returns in `out` the executables that a folder of the tree and its subfolders define, except those with MX_STAYS_HERE,
# which must stay on this machine together with a large library that they measure.
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

# Writes <build>/programs.txt, one "tests <path>" or "benchmarks <path>" per line. scripts/gpu_bundle.sh packs these
# programs, so a new test or benchmark needs no second list.
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

# mx_cuda_kernels(<layer> [SOURCES ...] [KERNELS ...] [TEMPLATES ...])
# Adds the CUDA sources of a layer to its library, which must exist, and generates <layer>/cuda_kernels.h, which declares
# in namespace mx::cuda what the sources define:
#   KERNELS name:    void name(const KernelArgs&);
#   TEMPLATES name:  void run_name(int op, const KernelArgs&), and name<op>, which calls it.
# In a build without CUDA, name, name<op> and also() are null pointers instead. So records name their kernels in every build.
function(mx_cuda_kernels layer)
  cmake_parse_arguments(ARG "" "" "SOURCES;KERNELS;TEMPLATES" ${ARGN})
  set(lines "")
  set(below "ndarray/cuda_kernels.h")
  if(layer STREQUAL ndarray)
    set(below "ndarray/launch.h")
    string(APPEND lines "/// Returns a function that serves every device, as the kernel for GPUs.\n")
    if(MX_HAVE_CUDA)
      string(APPEND lines "constexpr KernelFn also(KernelFn kernel) { return kernel; }\n")
    else()
      string(APPEND lines "constexpr KernelFn also(KernelFn) { return nullptr; }\n")
    endif()
  endif()
  foreach(name IN LISTS ARG_KERNELS)
    if(MX_HAVE_CUDA)
      string(APPEND lines "void ${name}(const KernelArgs& args);\n")
    else()
      string(APPEND lines "inline constexpr KernelFn ${name} = nullptr;\n")
    endif()
  endforeach()
  foreach(name IN LISTS ARG_TEMPLATES)
    if(MX_HAVE_CUDA)
      string(APPEND lines "void run_${name}(int op, const KernelArgs& args);\n"
        "template <auto kOp>\nvoid ${name}(const KernelArgs& args) {\n  run_${name}(static_cast<int>(kOp), args);\n}\n")
    else()
      string(APPEND lines "template <auto kOp>\ninline constexpr KernelFn ${name} = nullptr;\n")
    endif()
  endforeach()
  # For tests, which compile the sources with g++ in every build (tests/cuda/executor).
  set(host_lines "")
  foreach(name IN LISTS ARG_KERNELS)
    string(APPEND host_lines "void ${name}(const KernelArgs& args);\n")
  endforeach()
  foreach(name IN LISTS ARG_TEMPLATES)
    string(APPEND host_lines "void run_${name}(int op, const KernelArgs& args);\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated_on_host/${layer}/cuda_kernels.h @ONLY
    CONTENT "#pragma once\n\n#include \"ndarray/launch.h\"\n\nnamespace mx::cuda {\n\n@host_lines@\n}  // namespace mx::cuda\n")
  set(sources ${ARG_SOURCES})
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  list(TRANSFORM sources PREPEND ${layer}/)
  set_property(GLOBAL APPEND PROPERTY MX_CUDA_SOURCES ${sources})
  set_property(GLOBAL APPEND PROPERTY MX_CUDA_KERNELS ${ARG_KERNELS})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${layer}/cuda_kernels.h @ONLY
    CONTENT "// Generated by mx_cuda_kernels().\n#pragma once\n\n#include \"@below@\"\n\nnamespace mx::cuda {\n\n@lines@\n}  // namespace mx::cuda\n")
  target_include_directories(mx_${layer} PRIVATE ${PROJECT_BINARY_DIR}/generated)
  if(NOT MX_HAVE_CUDA OR NOT ARG_SOURCES)
    return()
  endif()
  # An object library, so that programs are still linked by the C++ compiler, which knows the sanitizers.
  add_library(mx_${layer}_cuda OBJECT ${ARG_SOURCES})
  target_include_directories(mx_${layer}_cuda PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_compile_features(mx_${layer}_cuda PRIVATE cxx_std_20)
  target_compile_options(mx_${layer}_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
    # 1835: it does not know the attribute tls_model, which matters to host code only. 20050: it ignores `inline` of kernels in
    # headers, which g++ needs where it compiles them.
    $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=1835,20050>)
  if(MX_WERROR)
    target_compile_options(mx_${layer}_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
  target_link_libraries(mx_${layer}_cuda PRIVATE CUDA::cudart_static mx_flags)
  set_target_properties(mx_${layer}_cuda PROPERTIES CUDA_STANDARD 20 UNITY_BUILD OFF)
  target_sources(mx_${layer} PRIVATE $<TARGET_OBJECTS:mx_${layer}_cuda>)
  target_link_libraries(mx_${layer} PRIVATE CUDA::cudart_static)
endfunction()
