list(APPEND mx_comm_sources
  rendezvous/client.cc
  rendezvous/departures.cc
  rendezvous/group_failures.cc
  rendezvous/limits.cc
  rendezvous/local.cc
  rendezvous/lost.cc
  rendezvous/machine.cc
  rendezvous/protocol.cc
  rendezvous/server.cc
  rendezvous/watches.cc)
