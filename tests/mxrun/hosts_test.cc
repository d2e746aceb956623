// Parsers of hosts: what they accept, and what they say about what they refuse.
#include "mxrun/hosts/hosts.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "mxrun/hosts/node_list.h"

namespace mx::launch {
namespace {

using Hosts = std::vector<Host>;
using Names = std::vector<std::string>;

std::string refusal_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "accepted";
}

std::string list_refusal(const std::string& text) {
  return refusal_of([&] { parse_host_list(text); });
}
std::string file_refusal(const std::string& text) {
  return refusal_of([&] { parse_hostfile(text, "hosts"); });
}
std::string nodes_refusal(const std::string& text) {
  return refusal_of([&] { parse_node_list(text); });
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST(HostList, NamesWithAndWithoutSlots) {
  EXPECT_EQ(parse_host_list("a"), (Hosts{{"a", 1}}));
  EXPECT_EQ(parse_host_list("a:4,b,c.example.org:2"), (Hosts{{"a", 4}, {"b", 1}, {"c.example.org", 2}}));
  EXPECT_EQ(parse_host_list(" a:4 , b "), (Hosts{{"a", 4}, {"b", 1}}));
  EXPECT_EQ(parse_host_list("10.0.0.1:2,[::1]:4,[fe80::1%eth0]"),
            (Hosts{{"10.0.0.1", 2}, {"::1", 4}, {"fe80::1%eth0", 1}}));
}

TEST(HostList, ARepeatedHostWithoutANumberGetsASlotEachTime) {
  EXPECT_EQ(parse_host_list("a,b,a,a"), (Hosts{{"a", 3}, {"b", 1}}));
  expect_contains(list_refusal("a:2,a"), "'a' is listed twice");
  expect_contains(list_refusal("a,a:2"), "'a' is listed twice");
  expect_contains(list_refusal("a:2,a:2"), "'a' is listed twice");
}

TEST(HostList, ReadsWhatItPrints) {
  const Hosts hosts{{"a", 3}, {"::1", 4096}, {"n-1_x.y", 1}};
  EXPECT_EQ(to_string(hosts), "a:3,[::1]:4096,n-1_x.y:1");
  EXPECT_EQ(parse_host_list(to_string(hosts)), hosts);
}

TEST(HostList, RefusesWithTheTextThatIsWrong) {
  expect_contains(list_refusal(""), "got ''");
  expect_contains(list_refusal("a,"), "'a,'");
  expect_contains(list_refusal(",a"), "expected hosts");
  expect_contains(list_refusal("a:"), "number of slots, got ''");
  expect_contains(list_refusal("a:four"), "'four'");
  expect_contains(list_refusal("a:-1"), "'-1'");
  expect_contains(list_refusal("a:0"), "1 to 4096 slots, got 0");
  expect_contains(list_refusal("a:4097"), "got 4097");
  expect_contains(list_refusal("a:99999999999999999999"), "99999999999999999999");
  expect_contains(list_refusal(":4"), "got nothing");
  expect_contains(list_refusal("::1"), "in brackets");
  expect_contains(list_refusal("[::1"), "']'");
  expect_contains(list_refusal("[host]:1"), "IPv6");
  expect_contains(list_refusal("[::1]4"), "'[address]:slots'");
  expect_contains(list_refusal("-oProxyCommand=evil"), "'-oProxyCommand=evil'");
  expect_contains(list_refusal("a;reboot"), "'a;reboot'");
  expect_contains(list_refusal("a b"), "'a b'");
  expect_contains(list_refusal(std::string(254, 'a')), "253 characters");
  expect_contains(list_refusal(std::string("a\0b", 3)), "'a\\x00b'");
}

TEST(HostList, IsBounded) {
  std::string many;
  for (int i = 0; i <= kMostHosts; ++i) many += "h" + std::to_string(i) + ",";
  many.pop_back();
  expect_contains(list_refusal(many), "at most 10000 hosts");
}

TEST(Hostfile, LinesInTheStyleOfOpenMpi) {
  const std::string text =
      "# our cluster\n"
      "\n"
      "n0 slots=4   # the first\n"
      "n1:2\r\n"
      "  n2\tslots=3 max_slots=8\n"
      "n3\n"
      "n3";
  EXPECT_EQ(parse_hostfile(text, "hosts"), (Hosts{{"n0", 4}, {"n1", 2}, {"n2", 3}, {"n3", 2}}));
}

TEST(Hostfile, ABadLineIsQuotedWithItsNumber) {
  const std::string message = file_refusal("n0 slots=4\n\nn1 slots=x\n");
  expect_contains(message, "hostfile hosts, line 3, 'n1 slots=x'");
  expect_contains(message, "number of slots, got 'x'");
  expect_contains(file_refusal("n0 slots=4\nn0 slots=2"), "line 2, 'n0 slots=2': host 'n0' is listed twice");
  expect_contains(file_refusal("n0 4"), "line 1, 'n0 4': expected 'slots=N', got '4'");
  expect_contains(file_refusal("n0 slots 4"), "got 'slots'");
  expect_contains(file_refusal("n0 cpus=4"), "'cpus=4'");
  expect_contains(file_refusal("n0:2 slots=4"), "given twice");
  expect_contains(file_refusal("n0 slots=2 slots=2"), "given twice");
  expect_contains(file_refusal("n0 slots=0"), "got 0");
  expect_contains(file_refusal("n0 slots=4 max_slots=2"), "max_slots of at least 4, got 2");
  expect_contains(file_refusal("n\xff slots=4"), "'n\\xff slots=4'");
  expect_contains(file_refusal(std::string(5000, 'a')), "...'");
}

TEST(Hostfile, WithoutHostsIsAnError) {
  expect_contains(file_refusal(""), "got none");
  expect_contains(file_refusal("# nothing\n\n"), "got none");
}

TEST(Hostfile, IsReadFromAFile) {
  const std::string path = testing::TempDir() + "/mxrun_hostfile_test";
  std::ofstream(path) << "n0 slots=2\nn1\n";
  EXPECT_EQ(read_hostfile(path), (Hosts{{"n0", 2}, {"n1", 1}}));
  expect_contains(refusal_of([&] { read_hostfile(path + ".missing"); }), "No such file or directory");
  std::ofstream(path) << std::string((4 << 20) + 1, '\n');
  expect_contains(refusal_of([&] { read_hostfile(path); }), "at most 4 MiB");
  std::remove(path.c_str());
}

TEST(NodeList, BracketsRangesAndWidths) {
  EXPECT_EQ(parse_node_list("x"), (Names{"x"}));
  EXPECT_EQ(parse_node_list("n[1-3,07],x"), (Names{"n1", "n2", "n3", "n07", "x"}));
  EXPECT_EQ(parse_node_list("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(parse_node_list("n[0998-1001]"), (Names{"n0998", "n0999", "n1000", "n1001"}));
  EXPECT_EQ(parse_node_list("a[5]b,c"), (Names{"a5b", "c"}));
  EXPECT_EQ(parse_node_list("r[0-1]n[0-1]"), (Names{"r0n0", "r0n1", "r1n0", "r1n1"}));
}

TEST(NodeList, RefusesWithTheTextThatIsWrong) {
  for (const char* bad :
       {"",      ",",       "a,", ",a",    "n[",     "n[]",      "n[1",   "n[1,]", "n[3-1]", "n[a]", "n[1-]",
        "n[-1]", "n[1--2]", "n]", "n[1]]", "n[[1]]", "n[1-2-3]", "n[ 1]", "a b",   "[1-3]-", "-x"}) {
    const std::string message = nodes_refusal(bad);
    if (std::string(bad) == "[1-3]-") {
      EXPECT_EQ(message, "accepted");
      continue;
    }
    EXPECT_EQ(message.rfind("[mxrun] list of nodes: ", 0), 0u) << bad << ": " << message;
  }
  expect_contains(nodes_refusal("n[1-x]"), "'1-x' in 'n[1-x]'");
}

TEST(NodeList, IsBounded) {
  expect_contains(nodes_refusal("n[0-10000]"), "at most 10000");
  expect_contains(nodes_refusal("n[0-999999999]"), "at most 10000");
  expect_contains(nodes_refusal("n[0-99]m[0-999]"), "at most 10000");
  expect_contains(nodes_refusal("n[0-9999],x"), "at most 10000");
  EXPECT_EQ(parse_node_list("n[0-9999]").size(), 10000u);
}

TEST(NodeList, CountsOfNodes) {
  EXPECT_EQ(parse_repeated_counts("4"), (std::vector<int>{4}));
  EXPECT_EQ(parse_repeated_counts("4(x2),3"), (std::vector<int>{4, 4, 3}));
  for (const char* bad : {"", "x", "4(x)", "4(2)", "4(x2", "4,", "4(x999999)"})
    expect_contains(refusal_of([&] { parse_repeated_counts(bad); }), "[mxrun] counts of nodes");
}

}  // namespace
}  // namespace mx::launch
