list(APPEND mx_comm_sources
  group_of_one.cc
  job.cc
  meeting_point.cc
  place.cc
  start.cc
  tcp/acceptor.cc
  tcp/connect.cc
  tcp/tcp_transport.cc
  transports.cc
  world.cc)
