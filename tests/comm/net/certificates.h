// Certificates for tests: an authority, and what it signs, in files of a folder that ends with the object.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "comm/net/tls.h"

namespace mx::test {

class Authority {
 public:
  explicit Authority(const std::string& name) : name_(name) {
    std::string pattern = (std::filesystem::temp_directory_path() / "mx_authority_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    key_ = EVP_EC_gen("P-256");
    certificate_ = make(name, key_, -1, 10, "");
    write_certificate(folder_ + "/authority.pem", certificate_);
  }
  ~Authority() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
    std::filesystem::remove_all(folder_);
  }
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  const std::string& folder() const { return folder_; }

  /// Writes a certificate, valid from `first` to `last`, in days from now, and its key. `usage` is what it
  /// may be used for, such as "serverAuth"; empty: everything.
  comm::TlsSettings sign(const std::string& name, int first = -1, int last = 1,
                         const std::string& usage = "") const {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = make(name, key, first, last, usage);
    comm::TlsSettings settings;
    settings.keys = comm::TlsKeys::certificates;
    settings.certificate = folder_ + "/" + name + ".pem";
    settings.key = folder_ + "/" + name + ".key";
    settings.authority = folder_ + "/authority.pem";
    write_certificate(settings.certificate, certificate);
    std::FILE* const file = std::fopen(settings.key.c_str(), "w");
    ::chmod(settings.key.c_str(), 0600);
    EXPECT_EQ(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return settings;
  }

 private:
  X509* make(const std::string& name, EVP_PKEY* key, int first, int last, const std::string& usage) const {
    const bool own = certificate_ == nullptr;
    X509* const certificate = X509_new();
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(certificate), first * 24L * 3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), last * 24L * 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(own ? certificate : certificate_));
    add(certificate, NID_basic_constraints, own ? "critical,CA:TRUE" : "CA:FALSE");
    if (!usage.empty()) add(certificate, NID_ext_key_usage, usage);
    EXPECT_GT(X509_sign(certificate, own ? key : key_, EVP_sha256()), 0);
    return certificate;
  }
  static void add(X509* certificate, int extension, const std::string& value) {
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, nullptr, extension, value.c_str());
    EXPECT_EQ(X509_add_ext(certificate, made, -1), 1);
    X509_EXTENSION_free(made);
  }
  static void write_certificate(const std::string& path, X509* certificate) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(PEM_write_X509(file, certificate), 1);
    std::fclose(file);
  }

  const std::string name_;
  std::string folder_;
  EVP_PKEY* key_ = nullptr;
  X509* certificate_ = nullptr;
  mutable long serial_ = 0;
};

}  // namespace mx::test
