# Push and pull through a server, beside bare sockets.
add_executable(kvstore_bench kvstore/kvstore_bench.cc)
target_link_libraries(kvstore_bench PRIVATE mx_bench_support mx::kvstore mx_flags)

# Ranks that wait, and ranks that are killed.
add_executable(ranks_bench comm/ranks_bench.cc)
target_link_libraries(ranks_bench PRIVATE mx_bench_support mx::kvstore mx_flags)
