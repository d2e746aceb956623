// Kubernetes manifests: what they contain and which settings are refused. launchers_k8s.py validates what
// mxrun prints against the schemas of Kubernetes.
#include "mxrun/manifest/kubernetes.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/error.h"
#include "mxrun/manifest/yaml.h"

namespace mx::launch {
namespace {

using Json = nlohmann::ordered_json;

ManifestOptions small_job() {
  ManifestOptions o;
  o.name = "digits";
  o.image = "example.org/mx:1";
  o.argv = {"train", "--lr", "0.1"};
  o.workers = 4;
  return o;
}

std::string manifest_refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Yaml, BlockStyleWithQuotesWhereNeeded) {
  const Json value = {{"a", 1},
                      {"list", Json::array({"x", "1", "true", "", "a b", Json::array(), Json::object()})},
                      {"map", {{"deep", {{"er", nullptr}}}, {"y", false}}},
                      {"maps", Json::array({{{"p", 1}, {"q", 2}}, {{"r", "a: b\n#"}}})}};
  EXPECT_EQ(to_yaml(value),
            "a: 1\n"
            "list:\n"
            "  - x\n"
            "  - \"1\"\n"
            "  - \"true\"\n"
            "  - \"\"\n"
            "  - \"a b\"\n"
            "  - []\n"
            "  - {}\n"
            "map:\n"
            "  deep:\n"
            "    er: null\n"
            "  \"y\": false\n"
            "maps:\n"
            "  - p: 1\n"
            "    q: 2\n"
            "  - r: \"a: b\\n#\"\n");
  EXPECT_THROW(to_yaml(Json("\xff")), InvalidArgument);
}

TEST(Yaml, CharactersThatItDoesNotAllowAreEscaped) {
  EXPECT_EQ(to_yaml(Json("a\x7f\u0080\u0085\u009f\u2028\u2029\ufeff\ufffe\uffff")),
            "\"a\\u007f\\u0080\\u0085\\u009f\\u2028\\u2029\\ufeff\\ufffe\\uffff\"\n");
  EXPECT_EQ(to_yaml(Json{{"\u2028", 1}}), "\"\\u2028\": 1\n");
  // Their neighbours, and a character that JSON would escape as a pair.
  EXPECT_EQ(to_yaml(Json("~\u00a0\u2027\u202a\ufefe\ufffd\U0001f600\\u")),
            "\"~\u00a0\u2027\u202a\ufefe\ufffd\U0001f600\\\\u\"\n");
}

TEST(Manifest, AnIndexedJobBehindAHeadlessService) {
  const std::string text = kubernetes_manifests(small_job());
  for (const char* part :
       {"kind: Service\n", "clusterIP: None\n", "kind: Job\n", "completionMode: Indexed\n",
        "completions: 4\n", "parallelism: 4\n", "backoffLimit: 0\n", "restartPolicy: Never\n",
        "subdomain: digits\n", "value: \"digits-0.digits:29500\"\n",
        "- name: MX_WORLD_SIZE\n              value: \"4\"\n", "secretName: digits-secret\n",
        "defaultMode: 384\n", "limits:\n", "publishNotReadyAddresses: true\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "JobSet"));
}

TEST(Manifest, AJobSetForServers) {
  ManifestOptions o = small_job();
  o.servers = 2;
  const std::string text = kubernetes_manifests(o);
  for (const char* part : {"kind: JobSet\n", "- name: workers\n", "- name: servers\n", "maxRestarts: 0\n",
                           "value: \"digits-workers-0-0.digits:29500\"\n", "value: server\n",
                           "targetReplicatedJobs:\n", "enableDNSHostnames: true\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "kind: Service\n"));
}

TEST(Manifest, TheSecretIsNamedAndNeverPrinted) {
  ManifestOptions o = small_job();
  o.secret = "ours";
  const std::string text = kubernetes_manifests(o);
  EXPECT_TRUE(has(text, "secretName: ours\n"));
  EXPECT_TRUE(has(text, "create secret generic ours --from-file=secret="));
  EXPECT_TRUE(has(text, "value: \"/etc/mxrun/secret\"\n"));
}

TEST(Manifest, NothingIsExpandedByKubernetes) {
  ManifestOptions o = small_job();
  o.argv = {"sh", "-c", "echo $(HOME) $$"};
  o.environment = {{"PRICE", "$5"}};
  const std::string text = kubernetes_manifests(o);
  EXPECT_TRUE(has(text, "\"echo $$(HOME) $$$$\"")) << text;
  EXPECT_TRUE(has(text, "value: \"$$5\"")) << text;
}

TEST(Manifest, TheInterfaceOfTheUserReplacesTheDefault) {
  ManifestOptions o = small_job();
  o.environment = {{"A", "1"}, {"MX_INTERFACE", "ib0"}, {"A", "2"}};
  const std::string text = kubernetes_manifests(o);
  EXPECT_TRUE(has(text, "- name: MX_INTERFACE\n              value: ib0\n")) << text;
  EXPECT_FALSE(has(text, "eth0")) << text;
  EXPECT_EQ(text.find("name: MX_INTERFACE"), text.rfind("name: MX_INTERFACE"));
  EXPECT_TRUE(has(text, "- name: A\n              value: \"2\"\n")) << text;
  EXPECT_EQ(text.find("name: A\n"), text.rfind("name: A\n"));
  for (const char* name : {"MX_ROLE", "MX_SECRET_FILE", "MX_RDZV", "MX_TIMEOUT_MS"}) {
    o.environment = {{name, "x"}};
    EXPECT_TRUE(has(manifest_refusal([&] { kubernetes_manifests(o); }),
                    std::string("-x: expected a variable that the manifests do not set, got ") + name));
  }
}

TEST(Manifest, SettingsAreRead) {
  ManifestOptions o = small_job();
  read_kubernetes_settings("image=i:2,namespace=train,kind=jobset,port=1234,cpu=500m,memory=4Gi,gpus=2", o);
  read_kubernetes_settings("interface=net1,secret=s,name=other", o);
  EXPECT_EQ(o.image, "i:2");
  EXPECT_EQ(o.name, "other");
  const std::string text = kubernetes_manifests(o);
  for (const char* part :
       {"namespace: train\n", "kind: JobSet\n", "other-workers-0-0.other:1234", "cpu: \"500m\"\n",
        "memory: \"4Gi\"\n", "nvidia.com/gpu: \"2\"\n", "value: net1\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(Manifest, BadSettingsAreNamed) {
  ManifestOptions o = small_job();
  for (const char* bad :
       {"", "image", "=x", "color=red", "gpus=many", "kind=pod", "port=", "secret=", "image=a,,cpu=1"})
    EXPECT_TRUE(has(manifest_refusal([&] { read_kubernetes_settings(bad, o); }), "--k8s")) << bad;
  const auto refused = [](const std::function<void(ManifestOptions&)>& change) {
    ManifestOptions changed = small_job();
    change(changed);
    return manifest_refusal([&] { kubernetes_manifests(changed); });
  };
  EXPECT_TRUE(has(refused([](auto& c) { c.image = ""; }), "--k8s image"));
  EXPECT_TRUE(has(refused([](auto& c) { c.name = "Upper"; }), "--k8s name"));
  EXPECT_TRUE(has(refused([](auto& c) { c.name = std::string(41, 'a'); }), "--k8s name"));
  EXPECT_TRUE(has(refused([](auto& c) { c.cpu = "two"; }), "--k8s cpu"));
  EXPECT_TRUE(has(refused([](auto& c) { c.memory = "4GB"; }), "--k8s memory"));
  EXPECT_TRUE(has(refused([](auto& c) { c.port = 0; }), "--k8s port"));
  EXPECT_TRUE(has(refused([](auto& c) { c.environment = {{"A=B", ""}}; }), "-x"));
  EXPECT_TRUE(has(refused([](auto& c) { c.argv = {"a\xff"}; }), "UTF-8"));
}

}  // namespace
}  // namespace mx::launch
