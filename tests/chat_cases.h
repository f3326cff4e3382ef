/* Stand-ins for the family's template texts: of the vendor's structure as far as anything here looks at it, in words of our
 * own. The vendor's text was not at hand. */
#ifndef DS_TESTS_CHAT_CASES_H
#define DS_TESTS_CHAT_CASES_H

#define STAND_IN_HEAD "# Tools\n\nFunctions:\n\n<tools>"
#define STAND_IN_TAIL "\n\nIf you choose one, write\n\n<tool_call>\n...\n</tool_call>\n\n<IMPORTANT>\n- It's \"so\"\n</IMPORTANT>"

#define STAND_IN_TOOLS                                                                                             \
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- \"# Tools\\n\\nFunctions:\\n\\n<tools>\" }}"                  \
    "{%- for tool in tools %}{{- \"\\n\" }}{{- tool | tojson }}{%- endfor %}{{- \"\\n</tools>\" }}"                 \
    "{{- '\\n\\nIf you choose one, write\\n\\n<tool_call>\\n...\\n</tool_call>\\n\\n<IMPORTANT>\\n- It\\'s \"so\"\\n</IMPORTANT>' }}" \
    "{%- endif %}"
#define STAND_IN_CALLS "{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}"
#define STAND_IN_THINK                                                                                             \
    "{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and enable_thinking is false %}"            \
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}"
#define STAND_IN_QWEN35 STAND_IN_TOOLS STAND_IN_CALLS STAND_IN_THINK
#define STAND_IN_QWEN36 STAND_IN_TOOLS STAND_IN_CALLS                                                              \
    "{%- if preserve_thinking is defined and preserve_thinking is true %}{%- endif %}" STAND_IN_THINK
/* As the shipped model's. */
#define STAND_IN_CHATML                                                                                            \
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}" \
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}"

#endif
