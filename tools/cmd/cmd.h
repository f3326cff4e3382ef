/* The subcommands of deltascope. Each is main() with argv[0] its own name and returns the exit code. */
#ifndef DS_TOOLS_CMD_CMD_H
#define DS_TOOLS_CMD_CMD_H

int ds_cmd_info(int argc, char **argv);
int ds_cmd_run(int argc, char **argv);
int ds_cmd_tokenize(int argc, char **argv);
int ds_cmd_bench(int argc, char **argv);
int ds_cmd_ladder(int argc, char **argv);
int ds_cmd_check(int argc, char **argv);
int ds_cmd_synth(int argc, char **argv);

#endif
