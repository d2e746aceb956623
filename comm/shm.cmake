list(APPEND mx_comm_sources
  shm/arena.cc shm/bootstrap.cc shm/channel.cc shm/collectives.cc shm/group.cc shm/peers.cc shm/region.cc shm/rings.cc
  shm/shm_communicator.cc)
