list(APPEND mx_comm_sources allreduce.cc call.cc call_comparison.cc call_header.cc collectives.cc cost_model.cc exchange.cc fold.cc host_name.cc
  parts.cc queued_communicator.cc transport_communicator.cc)
