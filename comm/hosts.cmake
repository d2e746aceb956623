list(APPEND mx_comm_sources hosts/connect.cc hosts/groups.cc hosts/machine.cc)
