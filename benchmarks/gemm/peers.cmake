# gemm_bench with the matrix product libraries that are installed.
find_package(hwy REQUIRED)
add_executable(gemm_bench gemm_bench.cc gemm/peers.cc op/bandwidth.cc)
target_link_libraries(gemm_bench PRIVATE mx_bench_support mx::operators TBB::tbb hwy::hwy mx_command_line mx_flags)

find_package(dnnl QUIET)
find_package(OpenMP QUIET COMPONENTS CXX)
if(dnnl_FOUND AND OpenMP_CXX_FOUND)
  target_compile_definitions(gemm_bench PRIVATE MX_BENCH_ONEDNN)
  target_link_libraries(gemm_bench PRIVATE DNNL::dnnl OpenMP::OpenMP_CXX)
endif()

find_path(MX_BENCH_OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread openblas)
find_library(MX_BENCH_OPENBLAS NAMES openblas)
if(MX_BENCH_OPENBLAS AND MX_BENCH_OPENBLAS_INCLUDE)
  target_compile_definitions(gemm_bench PRIVATE MX_BENCH_OPENBLAS)
  target_include_directories(gemm_bench SYSTEM PRIVATE ${MX_BENCH_OPENBLAS_INCLUDE})
  target_link_libraries(gemm_bench PRIVATE ${MX_BENCH_OPENBLAS})
endif()
