# allreduce_bench, and its ranks in Open MPI where it is installed.
add_executable(allreduce_bench comm/allreduce_bench.cc comm/measure.cc comm/systems.cc comm/tcp_systems.cc)
target_link_libraries(allreduce_bench PRIVATE mx_bench_support mx::comm mx_command_line mx_flags)

set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND AND MPIEXEC_EXECUTABLE AND NOT MX_SANITIZE)
  add_executable(allreduce_bench_mpi comm/allreduce_bench_mpi.cc comm/measure.cc)
  target_link_libraries(allreduce_bench_mpi PRIVATE mx_bench_support MPI::MPI_CXX mx_flags)
  target_compile_definitions(allreduce_bench PRIVATE MX_BENCH_MPIRUN="${MPIEXEC_EXECUTABLE}")
  add_dependencies(allreduce_bench allreduce_bench_mpi)
  if(TARGET mx_comm_mpi)
    # What the communicator "mpi" adds to MPI.
    add_executable(mpi_bench comm/mpi_bench.cc comm/measure.cc)
    target_link_libraries(mpi_bench PRIVATE mx_bench_support mx::comm MPI::MPI_CXX mx_flags)
    add_dependencies(mpi_bench mx_comm_mpi)
  endif()
endif()
