
#ifdef __cplusplus
}
#endif

#endif /* NANOVLLM_H */
