// Main program of the target that precompiles the headers (tests/CMakeLists.txt).
int main() { return 0; }
