mx_add_test(comm_module_test SOURCES module_test.cc DEPS mx::comm SERIAL)

# Open MPI is not compiled with the sanitizers, which report races and leaks of its own.
find_program(MX_MPIRUN mpirun)
find_package(MPI QUIET COMPONENTS CXX)
if(TARGET mx_comm_mpi AND MX_MPIRUN AND NOT MX_SANITIZE)
  add_executable(comm_mpi_program mpi/program.cc collective_checks.cc rank_processes.cc)
  set_target_properties(comm_mpi_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(comm_mpi_program PRIVATE mx::comm MPI::MPI_CXX GTest::gtest mx_flags)
  add_dependencies(comm_mpi_program mx_comm_mpi)
  foreach(case "1" "2" "3" "5" "3 names" "3 barrier" "3 barrier any" "2 pair" "3 pair" "2 answer" "3 answer" "2 leaves"
      "5 leaves" "2 aborts" "5 aborts" "2 queue" "3 ahead" "2 fork" "2 own" "2 exits"
      "2 exits busy" "2 exits tcp" "2 exits shm" "2 exits shm+tcp" "2 late" "2 stops")
    separate_arguments(words UNIX_COMMAND "${case}")
    string(REPLACE " " "_" name "${case}")
    list(GET words 0 ranks)
    list(REMOVE_AT words 0)
    add_test(NAME Comm.mpi_with_${name}
      COMMAND ${MX_MPIRUN} --oversubscribe --allow-run-as-root -n ${ranks} $<TARGET_FILE:comm_mpi_program> ${words})
    set_tests_properties(Comm.mpi_with_${name} PROPERTIES TIMEOUT 300 LABELS comm PROCESSORS 2
      PASS_REGULAR_EXPRESSION "rank 0 of ${ranks}: passed" FAIL_REGULAR_EXPRESSION "FAILED;failed:;exited on signal;non-zero exit code")
    # mpirun says so if a process has not finalised MPI. Ranks that have failed do not.
    if(case STREQUAL "2 late")
      set_property(TEST Comm.mpi_with_${name} APPEND PROPERTY FAIL_REGULAR_EXPRESSION "has exited due to process")
    endif()
  endforeach()

  # The suites of all communicators and of all rendezvous.
  add_executable(comm_mpi_conformance mpi/conformance_program.cc mpi/rendezvous_test.cc)
  set_target_properties(comm_mpi_conformance PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(comm_mpi_conformance PRIVATE mx_comm_conformance mx_rendezvous_conformance mx::comm GTest::gtest
    mx_flags)
  mx_compile_fast(comm_mpi_conformance)
  add_dependencies(comm_mpi_conformance mx_comm_mpi)
  foreach(ranks 1 2 3 4)
    add_test(NAME Comm.mpi_conformance_${ranks}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/mpi/conformance.py $<TARGET_FILE:comm_mpi_conformance> ${ranks}
        ${MX_MPIRUN} --oversubscribe --allow-run-as-root)
    set_tests_properties(Comm.mpi_conformance_${ranks} PROPERTIES TIMEOUT 900 LABELS comm PROCESSORS 2)
  endforeach()
endif()

# Several ranks share the GPU if there is only one. Without a GPU, the program says so and the tests are skipped.
if(TARGET mx_comm_nccl AND MX_MXRUN)
  add_executable(comm_nccl_program nccl/program.cc collective_checks.cc)
  set_target_properties(comm_nccl_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(comm_nccl_program PRIVATE mx::comm CUDA::cudart_static mx_flags)
  add_dependencies(comm_nccl_program mx_comm_nccl mxrun)
  foreach(case "1" "2" "3" "2 leaves" "2 aborts" "2 timeout" "2 fork" "2 count" "3 type" "2 name"
      "3 barrier" "2 message")
    separate_arguments(words UNIX_COMMAND "${case}")
    string(REPLACE " " "_" name "${case}")
    list(POP_FRONT words ranks)
    add_test(NAME Comm.nccl_with_${name}
      COMMAND $<TARGET_FILE:mxrun> -n ${ranks} --bind none $<TARGET_FILE:comm_nccl_program> ${words})
    set_tests_properties(Comm.nccl_with_${name} PROPERTIES TIMEOUT 300 LABELS comm PROCESSORS 2
      PASS_REGULAR_EXPRESSION "rank 0 of ${ranks}: passed" SKIP_REGULAR_EXPRESSION "no GPU here"
      FAIL_REGULAR_EXPRESSION "FAILED;failed:")
  endforeach()
endif()
