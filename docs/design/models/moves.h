/* With -DMOVES a checker tells at its end which moves it took; a replay with `spin -t` needs a model that was made without. */
#ifdef MOVES
c_decl {
  static const char *took_all[256];
  static void took(const char *move) {
    int i = 0;
    while (took_all[i] && took_all[i] != move) i++;
    took_all[i] = move;
  }
  __attribute__((destructor)) static void took_tell(void) {
    for (int i = 0; took_all[i]; i++) printf("took %s\n", took_all[i]);
  }
}
#define TOOK(what, a, b) c_code { took(#what " " #a " " #b); }
#else
#define TOOK(what, a, b) skip
#endif
