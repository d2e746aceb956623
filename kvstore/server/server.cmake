# The servers, and the stores that use them.
list(APPEND mx_kvstore_sources
  dist_server.cc
  dist_server_check.cc
  dist_server_file.cc
  dist_server_job.cc
  dist_server_key.cc
  server/bytes.cc
  server/fold.cc
  server/link.cc
  server/machine.cc
  server/machine_keys.cc
  server/run_server.cc
  server/server.cc
  server/server_group.cc
  server/shard.cc
  server/wire.cc)
