# Push and pull through a server, beside bare sockets.
add_executable(kvstore_bench kvstore/kvstore_bench.cc)
target_link_libraries(kvstore_bench PRIVATE mx_bench_support mx::kvstore mx_flags)
