# engine_bench with the peers that are installed.
set(harness
  engine/body.cc
  engine/cases_efficiency.cc
  engine/cases_latency.cc
  engine/cases_memory.cc
  engine/cases_throughput.cc
  engine/checker.cc
  engine/child.cc
  engine/measure.cc
  engine/pattern.cc
  engine/system_serial.cc
  engine/systems.cc)

add_executable(engine_bench engine_bench.cc engine/driver.cc engine/selftest.cc ${harness})
target_link_libraries(engine_bench PRIVATE mx_bench_support mx_command_line mx_flags)

# bench_peer(<define> SOURCES ... LIBRARIES ...)
function(bench_peer define)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  target_sources(engine_bench PRIVATE ${ARG_SOURCES})
  target_compile_definitions(engine_bench PRIVATE MX_BENCH_${define})
  target_link_libraries(engine_bench PRIVATE ${ARG_LIBRARIES})
endfunction()

bench_peer(MX SOURCES engine/system_mx.cc engine/cases_cliffs.cc engine/cases_mx.cc LIBRARIES mx::engine)
bench_peer(TBB SOURCES engine/system_tbb.cc engine/system_tbb_for.cc LIBRARIES TBB::tbb)

# Only this file gets OpenMP's flag, so that no other code depends on it.
find_package(OpenMP QUIET COMPONENTS CXX)
if(OpenMP_CXX_FOUND)
  bench_peer(OMP SOURCES engine/system_omp.cc LIBRARIES ${OpenMP_CXX_LIBRARIES})
  set_source_files_properties(engine/system_omp.cc PROPERTIES COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}")
endif()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(STARPU QUIET IMPORTED_TARGET starpu-1.3)
endif()
if(STARPU_FOUND)
  bench_peer(STARPU SOURCES engine/system_starpu.cc LIBRARIES PkgConfig::STARPU)
endif()

# Taskflow is headers only. If it is not installed, -DTASKFLOW_INCLUDE_DIR=folder names the folder that
# contains taskflow/. The option is a single word, because a source's list of options does not support
# "SHELL:" and may drop the second of two equal words.
find_path(TASKFLOW_INCLUDE_DIR taskflow/taskflow.hpp)
if(TASKFLOW_INCLUDE_DIR)
  bench_peer(TASKFLOW SOURCES engine/system_taskflow.cc)
  set_source_files_properties(engine/system_taskflow.cc PROPERTIES
    COMPILE_OPTIONS "-isystem${TASKFLOW_INCLUDE_DIR}")
endif()

# Clang's OpenMP runtime needs a separate program, built by Clang. engine_bench starts it like itself.
find_program(MX_BENCH_CLANGXX NAMES clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
if(MX_BENCH_CLANGXX AND NOT MX_SANITIZE AND NOT DEFINED MX_BENCH_CLANG_OPENMP)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/clang_openmp.cc "#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n")
  execute_process(
    COMMAND ${MX_BENCH_CLANGXX} -std=c++20 -fopenmp clang_openmp.cc -o clang_openmp
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(works OFF)
  else()
    set(works ON)
  endif()
  set(MX_BENCH_CLANG_OPENMP ${works} CACHE BOOL "clang++ can build OpenMP programs")
endif()
if(MX_BENCH_CLANG_OPENMP AND NOT MX_SANITIZE)
  set(helper ${CMAKE_CURRENT_BINARY_DIR}/engine_bench_omp_clang)
  set(helper_sources engine/helper_main.cc engine/system_omp.cc ${harness}
    support/clock.cc support/limits.cc support/malloc_count.cc support/process.cc support/report.cc)
  list(TRANSFORM helper_sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(GLOB helper_headers CONFIGURE_DEPENDS support/*.h engine/*.h)
  add_custom_command(OUTPUT ${helper}
    COMMAND ${MX_BENCH_CLANGXX} -std=c++20 -O3 -DNDEBUG -fopenmp -DMX_BENCH_OMP_CLANG
      $<$<BOOL:${MX_BENCH_LIBC_MALLOC}>:-DMX_BENCH_COUNT_MALLOC> -I${PROJECT_SOURCE_DIR}
      ${helper_sources} -o ${helper} -pthread
    DEPENDS ${helper_sources} ${helper_headers}
    COMMENT "Building engine_bench_omp_clang" VERBATIM)
  add_custom_target(engine_bench_clang ALL DEPENDS ${helper})
  add_dependencies(engine_bench engine_bench_clang)
  target_compile_definitions(engine_bench PRIVATE MX_BENCH_OMP_CLANG)
endif()
