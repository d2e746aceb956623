# allreduce_bench, with Gloo and with ranks in Open MPI where they are installed.
add_executable(allreduce_bench comm/allreduce_bench.cc comm/measure.cc comm/systems.cc comm/tcp_systems.cc)
target_link_libraries(allreduce_bench PRIVATE mx_bench_support mx::comm mx_command_line mx_flags)

find_path(MX_GLOO_INCLUDE gloo/allreduce.h)
find_library(MX_GLOO_LIBRARY gloo)
if(MX_GLOO_INCLUDE AND MX_GLOO_LIBRARY AND NOT MX_SANITIZE)
  target_sources(allreduce_bench PRIVATE comm/gloo_systems.cc)
  target_include_directories(allreduce_bench SYSTEM PRIVATE ${MX_GLOO_INCLUDE})
  target_link_libraries(allreduce_bench PRIVATE ${MX_GLOO_LIBRARY})
  target_compile_definitions(allreduce_bench PRIVATE MX_BENCH_GLOO)
endif()

set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI QUIET COMPONENTS CXX)
# FindMPI takes srun for MPIEXEC_EXECUTABLE where Slurm is installed.
find_program(MX_MPIRUN mpirun)
if(MPI_CXX_FOUND AND MX_MPIRUN AND NOT MX_SANITIZE)
  add_executable(allreduce_bench_mpi comm/allreduce_bench_mpi.cc comm/measure.cc)
  target_link_libraries(allreduce_bench_mpi PRIVATE mx_bench_support MPI::MPI_CXX mx_flags)
  target_compile_definitions(allreduce_bench PRIVATE MX_BENCH_MPIRUN="${MX_MPIRUN}")
  add_dependencies(allreduce_bench allreduce_bench_mpi)
  if(TARGET mx_comm_mpi)
    # What the communicator "mpi" adds to MPI.
    add_executable(mpi_bench comm/mpi_bench.cc comm/measure.cc)
    target_link_libraries(mpi_bench PRIVATE mx_bench_support mx::comm MPI::MPI_CXX mx_flags)
    add_dependencies(mpi_bench mx_comm_mpi)
  endif()
endif()
