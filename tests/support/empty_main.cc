// For the target whose headers are compiled beforehand (tests/CMakeLists.txt).
int main() { return 0; }
